# SPDX-License-Identifier: Apache-2.0
"""Campaigns on a board whose clocks its daemon holds."""
