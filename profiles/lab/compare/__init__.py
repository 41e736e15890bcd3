# SPDX-License-Identifier: Apache-2.0
"""Simulated boards compared with measurements of real ones, a module per source."""
