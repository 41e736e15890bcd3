# SPDX-License-Identifier: Apache-2.0
"""``torch.export`` archives as a front end of :class:`jetdvfs.kernels.network.Network`, read without PyTorch."""
