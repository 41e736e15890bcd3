# SPDX-License-Identifier: Apache-2.0
"""Demand of other work, and the lowest clocks for it."""
