# SPDX-License-Identifier: Apache-2.0
"""Rewriting of listed launches into those that run: the JIT's passes, and fusion."""
