# SPDX-License-Identifier: Apache-2.0
"""Shape rules of operators that work element by element or along a dimension."""
