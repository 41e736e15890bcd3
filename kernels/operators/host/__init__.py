# SPDX-License-Identifier: Apache-2.0
"""Rules of plain values and of TorchScript's own primitives: they cost the device nothing."""
