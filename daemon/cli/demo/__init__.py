# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs demo`` and its parts."""
