# SPDX-License-Identifier: Apache-2.0
"""Boards: their descriptions, trained profiles, and simulated twins."""
