# SPDX-License-Identifier: Apache-2.0
"""The board as it was found: kept before the first write, and the way back to it."""

from .baseline import RestoreReport as RestoreReport
from .keeper import BaselineKeeper as BaselineKeeper
from .store import BaselineStore as BaselineStore
