# SPDX-License-Identifier: Apache-2.0
"""Trigger, with the members that its definition has."""

from __future__ import annotations

from dataclasses import dataclass


class Trigger:
    @dataclass
    class Request:
        pass

    @dataclass
    class Response:
        success: bool = False
        message: str = ""
