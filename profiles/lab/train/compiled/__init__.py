# SPDX-License-Identifier: Apache-2.0
"""What engines cost: measured on simulated boards, fitted, and added to a bundle."""
