# SPDX-License-Identifier: Apache-2.0
"""Verbs that ask the daemon."""
