# SPDX-License-Identifier: Apache-2.0
"""Measuring campaigns, training, whole-network predictors, comparison with real boards, the papers' tables."""
