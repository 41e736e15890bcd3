# SPDX-License-Identifier: Apache-2.0
"""Trained profiles on disk, and their cached surfaces."""
