# SPDX-License-Identifier: Apache-2.0
"""The tables and figures of MIRAGE (SEC '21), made of a record of one or several boards."""
