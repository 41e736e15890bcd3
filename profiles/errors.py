# SPDX-License-Identifier: Apache-2.0
"""Errors of this package."""

from __future__ import annotations

from typing import ClassVar


class ProfilesError(Exception):
    """Base of every error of :mod:`jetdvfs.profiles`; its text is one line: the fault, its place, valid values."""

    exit_code: ClassVar[int] = 3


class BoardDescriptionError(ProfilesError):
    """A board file is missing or invalid."""


class BundleError(ProfilesError):
    """A profile bundle is missing, damaged, or made for another board."""


class TwinError(ProfilesError):
    """The simulated board cannot be served."""


class MeasurementError(ProfilesError):
    """A measurement failed; worth retrying."""


class RequestRefused(MeasurementError):
    """A worker refused a request, and goes on."""


class RefusedForNow(RequestRefused):
    """A worker lacks the memory or the time for a request, which may succeed later."""


class ComparisonDataError(ProfilesError):
    """Real measurements for comparison with a simulated board are missing or unreadable."""


class RecordError(ProfilesError):
    """A record of networks is missing, damaged, or unsuitable."""
