# SPDX-License-Identifier: Apache-2.0
"""Drivers of the board's sensors. Nothing is written."""
