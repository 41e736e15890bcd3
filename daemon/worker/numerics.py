# SPDX-License-Identifier: Apache-2.0
"""Threads of numpy's libraries, which read the environment when loaded."""

from __future__ import annotations

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
"""The daemon's matrices have a few dozen rows: threads would wait longer than they compute."""
