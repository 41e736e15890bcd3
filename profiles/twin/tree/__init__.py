# SPDX-License-Identifier: Apache-2.0
"""The file tree of a simulated board, with the kernel's semantics."""
