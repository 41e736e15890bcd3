# SPDX-License-Identifier: Apache-2.0
"""Passing clients' descriptors to a child process, without ever receiving, reading or closing one here."""
