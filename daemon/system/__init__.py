# SPDX-License-Identifier: Apache-2.0
"""The service's links to the system: manager, journal, and files."""
