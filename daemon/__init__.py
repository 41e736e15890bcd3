# SPDX-License-Identifier: Apache-2.0
"""The resident process: drivers, planner, leases, and the applications' socket."""
