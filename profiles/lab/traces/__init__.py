# SPDX-License-Identifier: Apache-2.0
"""Profiler traces of a network's run, compared with its launches."""
