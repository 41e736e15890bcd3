# SPDX-License-Identifier: Apache-2.0
"""Clocks of a simulated board, and their kernel-specific files."""
