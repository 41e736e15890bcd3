# SPDX-License-Identifier: Apache-2.0
"""Corrections of surfaces by observations, and first surfaces for unmodelled programs."""
