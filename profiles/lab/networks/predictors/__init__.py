# SPDX-License-Identifier: Apache-2.0
"""Whole-network predictors: trees, and graph networks trained by PyTorch and run by NumPy."""
