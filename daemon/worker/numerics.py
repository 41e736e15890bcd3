# SPDX-License-Identifier: Apache-2.0
"""How many threads numpy's libraries take, which read that from the environment as they are loaded."""

from __future__ import annotations

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
"""The daemon's matrices have a few dozen rows: threads would wait for each other for longer than they compute."""
