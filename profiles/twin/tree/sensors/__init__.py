# SPDX-License-Identifier: Apache-2.0
"""Power, heat and fan of a simulated board, and their kernel-specific files."""
