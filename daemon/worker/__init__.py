# SPDX-License-Identifier: Apache-2.0
"""The unprivileged child that reads strangers' models and sweeps tree models over the grid."""
