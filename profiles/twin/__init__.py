# SPDX-License-Identifier: Apache-2.0
"""Simulated board: silicon and file tree."""
