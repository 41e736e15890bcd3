# SPDX-License-Identifier: Apache-2.0
"""Verbs on a simulated board: ``jetdvfs twin``."""
