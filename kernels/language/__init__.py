# SPDX-License-Identifier: Apache-2.0
"""Language models as a front end of :class:`jetdvfs.kernels.network.Network`: headers of GGUF and safetensors, no weights."""
