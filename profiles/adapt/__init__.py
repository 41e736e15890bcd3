# SPDX-License-Identifier: Apache-2.0
"""Adaptation of a profile to a new board: records of some minutes, PyTorch and TensorRT next to the board."""
