# SPDX-License-Identifier: Apache-2.0
"""Shape rules of the ATen operators, by family."""
