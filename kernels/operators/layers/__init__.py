# SPDX-License-Identifier: Apache-2.0
"""Shape rules of layers."""
