# SPDX-License-Identifier: Apache-2.0
"""Kernels to measure: those that networks launch, and others drawn around them."""
