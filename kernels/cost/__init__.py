# SPDX-License-Identifier: Apache-2.0
"""Cost of a network on a board: models of its kernels and host, combined into a surface."""

COST_VERSION = 15
"""Raised with every change of surfaces by the same models, so that surfaces kept on disk are made anew."""
