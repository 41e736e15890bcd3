# SPDX-License-Identifier: Apache-2.0
"""The clocks of a simulated board, and the files through which each kernel shows them."""
