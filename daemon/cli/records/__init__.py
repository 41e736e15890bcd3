# SPDX-License-Identifier: Apache-2.0
"""The parts of ``jetdvfs profile`` that make and take records: imported, put together, searched for recipes."""
