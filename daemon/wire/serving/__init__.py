# SPDX-License-Identifier: Apache-2.0
"""The daemon's end of the socket: who is connected, what they sent, and the answers, in turns."""
