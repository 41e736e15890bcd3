# SPDX-License-Identifier: Apache-2.0
"""The board's thread, and the snapshots that answer requests."""
