# SPDX-License-Identifier: Apache-2.0
"""Simulated nvpmodel and jetson_clocks, and their files.

Written from published behaviour. ``ROOT/usr/sbin/nvpmodel`` works on ``ROOT``, through files and the standard library alone.
"""
