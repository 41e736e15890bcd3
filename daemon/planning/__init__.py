# SPDX-License-Identifier: Apache-2.0
"""What plans are made from, and those that were made lately."""
