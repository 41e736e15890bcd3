# SPDX-License-Identifier: Apache-2.0
"""What ends a node's spinning from outside."""


class ExternalShutdownException(Exception):
    """The context was shut down, by a signal for instance."""
