# SPDX-License-Identifier: Apache-2.0
"""How far each simulated board is from measurements of a real one: one module per source of measurements."""
