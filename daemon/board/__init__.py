# SPDX-License-Identifier: Apache-2.0
"""The thread on which everything that touches the board happens, and what it leaves for others to read."""
