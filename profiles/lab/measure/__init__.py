# SPDX-License-Identifier: Apache-2.0
"""Measuring campaigns, their meters and records."""
