# SPDX-License-Identifier: Apache-2.0
"""The socket: protocol, interface definitions, server, and client."""
