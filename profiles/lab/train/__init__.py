# SPDX-License-Identifier: Apache-2.0
"""Bundles from records of measurements, and their accuracy."""
