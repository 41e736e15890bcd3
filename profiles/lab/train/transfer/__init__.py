# SPDX-License-Identifier: Apache-2.0
"""Profiles transferred to other boards."""
