# SPDX-License-Identifier: Apache-2.0
"""Parts of ``jetdvfs profile`` that take records further: hyperparameters searched, records of several owners put together."""
