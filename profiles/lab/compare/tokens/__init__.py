# SPDX-License-Identifier: Apache-2.0
"""Tokens of language models on real boards, beside what their bytes and their work come to."""
