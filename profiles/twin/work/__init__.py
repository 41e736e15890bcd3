# SPDX-License-Identifier: Apache-2.0
"""What runs on a simulated board: applications' frames, and other work beside them."""
