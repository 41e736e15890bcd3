# SPDX-License-Identifier: Apache-2.0
"""What frames that applications report say of plans: targets that are missed, predictions that were wrong, plans made again."""
