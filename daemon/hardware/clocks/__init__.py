# SPDX-License-Identifier: Apache-2.0
"""Drivers of the clock domains, and the write order of their files."""
