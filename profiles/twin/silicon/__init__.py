# SPDX-License-Identifier: Apache-2.0
"""Silicon of simulated boards: time and power of kernels and of the host over the clocks."""
