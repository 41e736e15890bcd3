# SPDX-License-Identifier: Apache-2.0
"""One small driver per clock domain or sensor, all reaching the board through one injected root."""
