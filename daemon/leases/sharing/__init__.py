# SPDX-License-Identifier: Apache-2.0
"""Several applications on one GPU, and clocks that keep all targets."""
