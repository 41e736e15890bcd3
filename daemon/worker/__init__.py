# SPDX-License-Identifier: Apache-2.0
"""The unprivileged child: reads models, and sweeps tree models over the grid."""
