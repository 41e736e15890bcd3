# SPDX-License-Identifier: Apache-2.0
"""What the board may draw as a whole: so that a battery lasts, and so that no zone becomes too hot."""
