# SPDX-License-Identifier: Apache-2.0
"""Adaptation of a profile to a new board, by PyTorch and TensorRT."""
