# SPDX-License-Identifier: Apache-2.0
"""What a network is made of, and what each part of it costs."""
