# SPDX-License-Identifier: Apache-2.0
"""From a surface and a target to a plan: targets, limits, outlooks, plans, exploration, power modes."""
