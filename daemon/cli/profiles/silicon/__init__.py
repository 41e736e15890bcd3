# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile comparison`` and its like: simulated boards beside measurements of real ones."""
