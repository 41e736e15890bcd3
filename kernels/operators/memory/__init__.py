# SPDX-License-Identifier: Apache-2.0
"""Shape rules of operators that make tensors, view memory differently, or move its contents."""
