# SPDX-License-Identifier: Apache-2.0
"""Profiles carried to boards that they are not of."""
