# SPDX-License-Identifier: Apache-2.0
"""Research: measuring campaigns, training, predictors of whole networks, comparison with real boards, the papers' tables."""
