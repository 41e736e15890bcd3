# SPDX-License-Identifier: Apache-2.0
"""The daemon's figures in a browser."""
