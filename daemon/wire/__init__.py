# SPDX-License-Identifier: Apache-2.0
"""The socket: the protocol, its interface definitions, the server, and the client of an application."""
