# SPDX-License-Identifier: Apache-2.0
"""Power, heat and the fan of a simulated board, and the files through which each kernel shows them."""
