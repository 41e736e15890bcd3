# SPDX-License-Identifier: Apache-2.0
"""Verbs about a model: they need a profile at most, and no daemon."""
