# SPDX-License-Identifier: Apache-2.0
"""TensorRT's account of an engine as a front end of :class:`jetdvfs.kernels.network.Network`: JSON, read without TensorRT."""
