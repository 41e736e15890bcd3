# SPDX-License-Identifier: Apache-2.0
"""Whole-network predictors: trees on global features, and graph networks trained by PyTorch and run by NumPy."""
