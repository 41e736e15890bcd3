# SPDX-License-Identifier: Apache-2.0
"""Meters of real and simulated boards."""
