# SPDX-License-Identifier: Apache-2.0
"""Silicon of simulated boards: time and power of kernels and host over the clocks."""
