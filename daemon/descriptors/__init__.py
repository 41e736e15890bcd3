# SPDX-License-Identifier: Apache-2.0
"""Descriptors that strangers send, and how they reach a child without this process ever having, reading or closing one."""
