# SPDX-License-Identifier: Apache-2.0
"""Predictors of whole networks: trees on global features, and graph networks that are trained by PyTorch and run by NumPy."""
