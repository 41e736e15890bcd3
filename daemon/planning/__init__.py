# SPDX-License-Identifier: Apache-2.0
"""Planning: targets, limits, outlooks, plans, exploration, power modes."""
