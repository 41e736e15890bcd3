# SPDX-License-Identifier: Apache-2.0
"""Shape rules of operators that make tensors, view memory, or move its contents."""
