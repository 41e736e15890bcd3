# SPDX-License-Identifier: Apache-2.0
"""Measurement tables of real devices, and their mappings."""
