# SPDX-License-Identifier: Apache-2.0
"""Tables and figures of MIRAGE (SEC '21) from a record."""
