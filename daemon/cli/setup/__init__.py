# SPDX-License-Identifier: Apache-2.0
"""From a new board to its proven profile."""
