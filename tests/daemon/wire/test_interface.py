# SPDX-License-Identifier: Apache-2.0
"""Definitions of interfaces, as the varlink project's library reads them, and replies that keep to them."""

from __future__ import annotations

import msgspec
import pytest
import varlink

from jetdvfs.daemon.wire.calls import ADMIN, PUBLIC
from jetdvfs.daemon.wire.definition import definition
from jetdvfs.daemon.wire.interface import Interface
from jetdvfs.docs.interfaces import definitions
from jetdvfs.tests.support.daemons.echo import ECHO
from jetdvfs.tests.support.daemons.replies import check_reply


@pytest.mark.parametrize("interface", [PUBLIC, ADMIN, ECHO], ids=lambda interface: interface.name)
def test_definitions_are_valid(interface: Interface) -> None:
    read = varlink.Interface(definition(interface))
    assert read.name == interface.name
    assert read.members.keys() >= interface.errors.keys() | interface.decoders.keys()
    for method in interface.methods:
        found = read.get_method(method.name)
        assert list(found.in_type.fields) == list(method.parameters.__struct_fields__)
        assert list(found.out_type.fields) == list(method.reply.__struct_fields__)


def test_a_type_is_defined_before_the_first_method_that_needs_it() -> None:
    expected = """interface test.echo

method Echo(text: string, wait_s: ?float) -> (text: string, descriptors: int)

type Pair (left: int, right: ?float)

method Sum(pairs: []Pair, names: [string]bool, sort: ?(up, down)) -> (sum: float)

method Fail(how: string) -> ()

error Failed (message: string)
"""
    assert definition(ECHO) == expected


def test_the_definitions_in_the_documents_are_up_to_date() -> None:
    for path, text in definitions().items():
        assert path.read_text(encoding="utf-8") == text, "python docs/interfaces.py writes it again"


def test_a_reply_that_the_definition_does_not_promise_is_found() -> None:
    check_reply(ECHO, "Sum", {"sum": 1.5})
    for reply in ({"sum": "1.5"}, {"sum": float("nan")}, {"sum": 1.5, "count": 1}, {}):
        with pytest.raises(msgspec.ValidationError):
            check_reply(ECHO, "Sum", reply)
