# SPDX-License-Identifier: Apache-2.0
"""Cost of a network on a board: models of its kernels and host, combined into a surface."""

COST_VERSION = 14
"""Raised when the same models come to give another surface, so that surfaces kept on disk are made anew."""
