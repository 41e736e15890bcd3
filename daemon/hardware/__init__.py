# SPDX-License-Identifier: Apache-2.0
"""Drivers of the board's clocks and sensors, under one injected root."""
