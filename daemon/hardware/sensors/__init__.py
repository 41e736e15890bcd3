# SPDX-License-Identifier: Apache-2.0
"""Read-only drivers of the board's sensors."""
