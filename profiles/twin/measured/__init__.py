# SPDX-License-Identifier: Apache-2.0
"""Tables of measurements of real devices, and the meaning of their columns."""
