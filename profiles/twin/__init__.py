# SPDX-License-Identifier: Apache-2.0
"""A simulated board: its silicon, and the file tree through which it is reached."""
