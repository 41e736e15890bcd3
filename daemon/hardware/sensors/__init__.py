# SPDX-License-Identifier: Apache-2.0
"""What a board measures: one small driver per sensor. Nothing is written."""
