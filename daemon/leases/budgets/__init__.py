# SPDX-License-Identifier: Apache-2.0
"""Power budgets of the board: battery life and temperature ceilings."""
