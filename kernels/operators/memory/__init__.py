# SPDX-License-Identifier: Apache-2.0
"""Shape rules of operators that make tensors, look at memory in another way, or move what is in it."""
