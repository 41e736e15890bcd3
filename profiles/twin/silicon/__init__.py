# SPDX-License-Identifier: Apache-2.0
"""The silicon of simulated boards: time and power of kernels and of the host, as a function of the clocks."""
