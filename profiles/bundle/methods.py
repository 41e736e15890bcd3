# SPDX-License-Identifier: Apache-2.0
"""By which methods a profile predicts: the kernel-level ones, and its predictor of whole networks, where it has one."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ...kernels.cost.model import METHODS as KERNEL_LEVEL
from ...kernels.cost.model import Method as KernelLevel

Method: TypeAlias = KernelLevel | Literal["network"]
NETWORK: Final = "network"
METHODS: tuple[Method, ...] = (*KERNEL_LEVEL, NETWORK)
