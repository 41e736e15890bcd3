# SPDX-License-Identifier: Apache-2.0
"""Clocks that other work on the board needs: measured, and turned into lower bounds."""
