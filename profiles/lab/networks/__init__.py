# SPDX-License-Identifier: Apache-2.0
"""Whole networks as graphs, and predictors of whole networks."""
