# SPDX-License-Identifier: Apache-2.0
"""The daemon's end of the socket: connections, calls, and replies, in turns."""
