# SPDX-License-Identifier: Apache-2.0
"""Boards that take as long and draw as much as a real board was measured to, over a whole grid of clocks."""
