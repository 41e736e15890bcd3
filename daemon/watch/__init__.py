# SPDX-License-Identifier: Apache-2.0
"""What happens on the board besides our own requests: other work, other hands, over-current events."""
