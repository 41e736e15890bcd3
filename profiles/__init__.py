# SPDX-License-Identifier: Apache-2.0
"""Board descriptions, trained profiles, and simulated boards."""
