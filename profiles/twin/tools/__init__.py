# SPDX-License-Identifier: Apache-2.0
"""Simulated nvpmodel and jetson_clocks, from published behaviour; they use files and the standard library alone."""
