# SPDX-License-Identifier: Apache-2.0
"""Rules of plain values and of TorchScript's own primitives, which launch nothing."""
