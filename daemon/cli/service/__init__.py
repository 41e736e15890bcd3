# SPDX-License-Identifier: Apache-2.0
"""Verbs about the installed service: its configuration, and whether everything it needs is there."""
