# SPDX-License-Identifier: Apache-2.0
"""One small driver per clock domain, and the order in which its files may be written."""
