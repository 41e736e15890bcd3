# SPDX-License-Identifier: Apache-2.0
"""Learning from reported frames: missed targets, wrong predictions, new plans."""
