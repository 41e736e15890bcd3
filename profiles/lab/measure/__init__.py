# SPDX-License-Identifier: Apache-2.0
"""Measuring a board: what to measure, with which meter, and the record of it."""
