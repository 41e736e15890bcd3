# SPDX-License-Identifier: Apache-2.0
"""ONNX front end of :class:`jetdvfs.kernels.network.Network`, without the ``onnx`` package."""
