# SPDX-License-Identifier: Apache-2.0
"""Real measurements, predicted by models that were trained without them."""
