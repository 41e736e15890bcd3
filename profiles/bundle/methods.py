# SPDX-License-Identifier: Apache-2.0
"""By which methods a profile predicts: the kernel-level ones, and its predictor of whole networks, where it has one."""

from __future__ import annotations

from ...kernels.cost.model import METHODS as KERNEL_LEVEL

NETWORK = "network"
METHODS: tuple[str, ...] = (*KERNEL_LEVEL, NETWORK)
