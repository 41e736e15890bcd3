# SPDX-License-Identifier: Apache-2.0
"""Simulated boards compared with real ones."""
