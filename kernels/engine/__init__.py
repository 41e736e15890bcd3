# SPDX-License-Identifier: Apache-2.0
"""Front end for TensorRT engines, from their layers in JSON, without TensorRT."""
