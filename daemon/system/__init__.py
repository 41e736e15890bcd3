# SPDX-License-Identifier: Apache-2.0
"""What the service shares with the system: its manager, the journal, and what it keeps on disk."""
