# SPDX-License-Identifier: Apache-2.0
"""Rules of plain values and TorchScript primitives, without launches."""
