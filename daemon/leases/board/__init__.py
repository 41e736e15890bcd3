# SPDX-License-Identifier: Apache-2.0
"""The thread that touches the board, and the snapshots that requests are answered from."""
