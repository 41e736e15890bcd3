# SPDX-License-Identifier: Apache-2.0
"""Leases: granted requests, their common clocks, and corrections by frames."""
