# SPDX-License-Identifier: Apache-2.0
"""The user for whom something is being done, in tasks and threads: log lines count as this user's."""

from __future__ import annotations

from contextvars import ContextVar

ACTING: ContextVar[int | None] = ContextVar("acting", default=None)
"""The user's id; None for what the daemon does by itself. Tasks inherit it from the call that created them."""
