# SPDX-License-Identifier: Apache-2.0
"""How a library computes convolutions and products: the algorithms there are, and which one it takes."""
