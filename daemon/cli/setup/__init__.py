# SPDX-License-Identifier: Apache-2.0
"""From a new board to a profile of it that is proven."""
