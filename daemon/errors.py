# SPDX-License-Identifier: Apache-2.0
"""Errors of this package, with exit codes of the command line."""

from __future__ import annotations

from typing import ClassVar


class DaemonError(Exception):
    """Base of all errors of :mod:`jetdvfs.daemon`; one line tells fault, place and valid values."""

    exit_code: ClassVar[int] = 3


class TransientError(DaemonError):
    """The same request may succeed later."""


class UsageError(DaemonError):
    """The request is malformed."""

    exit_code = 2


class LeaseEnded(UsageError):
    """Another client than its holder ended the lease."""


class InputError(DaemonError):
    """An unusable input: a model, a profile, a descriptor."""


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
    """A file of the board did not answer; a write may still take effect later."""


class LimitReached(TransientError):
    """The limit on simultaneous uses is reached."""


class WorkerFailed(TransientError):
    """A child that converts or sweeps a profile's models failed."""


class NotPermitted(DaemonError):
    """The caller may not do this."""


class NoDaemon(TransientError):
    """No daemon answers on the socket."""

    exit_code = 6
