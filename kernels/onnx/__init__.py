# SPDX-License-Identifier: Apache-2.0
"""ONNX files as a front end of :class:`jetdvfs.kernels.network.Network`, read without the ``onnx`` package."""
