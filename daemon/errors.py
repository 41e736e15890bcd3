# SPDX-License-Identifier: Apache-2.0
"""Errors of this package, each with the exit code the command line answers with.

A ``TransientError`` is worth another try, which :func:`jetdvfs.daemon.hardware.patience.retried` makes; every other one would
fail again.
"""

from __future__ import annotations

from typing import ClassVar


class DaemonError(Exception):
    """Base of every error raised by :mod:`jetdvfs.daemon`; its text is one line that says what, where and what is valid."""

    exit_code: ClassVar[int] = 3


class TransientError(DaemonError):
    """The same request may succeed when tried again."""


class UsageError(DaemonError):
    """The request itself is malformed."""

    exit_code = 2


class LeaseEnded(UsageError):
    """The lease was ended by another than its holder: released, or the board restored."""


class InputError(DaemonError):
    """What was handed in (a model, a profile, a descriptor) cannot be used."""

    exit_code = 3


class TargetNotAttainable(DaemonError):
    """No permitted frequency configuration meets the target."""

    exit_code = 4


class HardwareRefused(DaemonError):
    """The board refused a setting, or it could not be verified."""

    exit_code = 5


class NotOffered(HardwareRefused):
    """The board does not offer a frequency now; nothing was written."""


class HardwareBusy(TransientError):
    """The board did not answer in time, or a node has not appeared yet."""

    exit_code = 5


class HardwareHangs(HardwareBusy):
    """A file of the board did not answer at all; a write may still take effect when it does."""


class LimitReached(TransientError):
    """As many of something are in use as are allowed at once."""


class NotPermitted(DaemonError):
    """The caller may not do this."""


class NoDaemon(TransientError):
    """No daemon answers on the socket."""

    exit_code = 6
