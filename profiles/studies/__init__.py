# SPDX-License-Identifier: Apache-2.0
"""Studies of the papers' tables, of how hard simulated boards are to predict, and of how close they come to real ones."""
