# SPDX-License-Identifier: Apache-2.0
"""From a record of measurements to a bundle, and how well it predicts."""
