# SPDX-License-Identifier: Apache-2.0
"""Errors of this package."""

from __future__ import annotations

from typing import ClassVar


class ProfilesError(Exception):
    """Base of this package's errors; the text is one line."""

    exit_code: ClassVar[int] = 3


class BoardDescriptionError(ProfilesError):
    """Board file missing or invalid."""


class BundleError(ProfilesError):
    """Profile bundle missing, damaged, or made for another board."""


class TwinError(ProfilesError):
    """Simulated board cannot be served."""


class MeasurementError(ProfilesError):
    """Measurement failed; worth retrying."""


class RequestRefused(MeasurementError):
    """Request refused by a worker, which goes on."""


class RefusedForNow(RequestRefused):
    """Request refused for lack of memory or time; it may succeed later."""


class ComparisonDataError(ProfilesError):
    """Measurements of real boards missing or unreadable."""


class RecordError(ProfilesError):
    """Record of networks missing, damaged, or unsuitable."""
