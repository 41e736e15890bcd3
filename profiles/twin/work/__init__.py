# SPDX-License-Identifier: Apache-2.0
"""Application frames and co-runners on a simulated board."""
