# SPDX-License-Identifier: Apache-2.0
"""Whole networks as graphs, and predictors that take a network at once instead of kernel by kernel."""
