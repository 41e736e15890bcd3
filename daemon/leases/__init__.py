# SPDX-License-Identifier: Apache-2.0
"""Leases: requests granted, the clocks that all of them need together, and the frames that correct their plans."""
