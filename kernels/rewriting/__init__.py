# SPDX-License-Identifier: Apache-2.0
"""Launches as they run, made of those that are listed: passes over what is needed, and kernels put together."""
