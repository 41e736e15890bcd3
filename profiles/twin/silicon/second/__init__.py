# SPDX-License-Identifier: Apache-2.0
"""Version 2 of the silicon's behaviour: what it does otherwise than version 1, and only that."""
