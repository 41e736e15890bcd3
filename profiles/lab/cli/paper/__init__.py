# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab paper``: studies of MIRAGE (SEC '21)."""
