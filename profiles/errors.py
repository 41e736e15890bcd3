# SPDX-License-Identifier: Apache-2.0
"""Errors of this package."""

from __future__ import annotations

from typing import ClassVar


class ProfilesError(Exception):
    """Base of every error raised by :mod:`jetdvfs.profiles`; its text is one line that says what, where and what is valid."""

    exit_code: ClassVar[int] = 3


class BoardDescriptionError(ProfilesError):
    """A board file is missing or says something that cannot be."""


class BundleError(ProfilesError):
    """A profile bundle is missing, damaged, or made for another board."""


class TwinError(ProfilesError):
    """The simulated board cannot be served as asked."""


class MeasurementError(ProfilesError):
    """A measurement did not come out; worth retrying."""


class RequestRefused(MeasurementError):
    """A worker cannot do what it was asked for, and goes on."""


class RefusedForNow(RequestRefused):
    """A worker lacks the memory or the time for a request, which may succeed later."""


class ComparisonDataError(ProfilesError):
    """Measurements of a real board, to compare a simulated one with, are missing or unreadable."""


class RecordError(ProfilesError):
    """A record of networks is missing, damaged, or cannot serve what is asked of it."""
