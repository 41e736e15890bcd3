# SPDX-License-Identifier: Apache-2.0
"""Several applications on one GPU: what their frames cost each other, and clocks at which all keep their targets."""
