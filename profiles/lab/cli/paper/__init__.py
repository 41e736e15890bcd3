# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs-lab paper report``: a record beside the tables and figures of MIRAGE (SEC '21)."""
