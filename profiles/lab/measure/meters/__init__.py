# SPDX-License-Identifier: Apache-2.0
"""Meters: what a measuring campaign asks of a board, real or simulated."""
