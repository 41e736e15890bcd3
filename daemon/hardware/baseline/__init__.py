# SPDX-License-Identifier: Apache-2.0
"""The baseline: the board's clocks before the first write, and their restoration."""

from .baseline import RestoreReport as RestoreReport
from .keeper import BaselineKeeper as BaselineKeeper
from .store import BaselineStore as BaselineStore
