# SPDX-License-Identifier: Apache-2.0
"""Real measurements, predicted by models trained without them."""
