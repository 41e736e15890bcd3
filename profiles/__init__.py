# SPDX-License-Identifier: Apache-2.0
"""What is known about a board: its description, its trained profile, and its simulated twin."""
