# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs profile`` and its parts."""
