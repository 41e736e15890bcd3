# SPDX-License-Identifier: Apache-2.0
"""What a network costs on a board: the models of its kernels and of its host, put together into a surface."""

COST_VERSION = 13
"""Raised when the same models come to give another surface, so that surfaces kept on disk are made anew."""
