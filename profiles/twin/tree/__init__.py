# SPDX-License-Identifier: Apache-2.0
"""File tree of a simulated board, with the kernel's semantics."""
