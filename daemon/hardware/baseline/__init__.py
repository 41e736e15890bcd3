# SPDX-License-Identifier: Apache-2.0
"""Baseline of the board's clocks, and its restoration."""

from .baseline import RestoreReport as RestoreReport
from .keeper import LAST_TRY_S as LAST_TRY_S
from .keeper import BaselineKeeper as BaselineKeeper
from .store import BaselineStore as BaselineStore
