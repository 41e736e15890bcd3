# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab silicon comparison`` and its like: simulated boards beside measurements of real ones."""
