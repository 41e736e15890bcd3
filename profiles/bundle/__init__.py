# SPDX-License-Identifier: Apache-2.0
"""A trained profile on disk, and the surfaces that were made with it."""
