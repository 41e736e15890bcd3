# SPDX-License-Identifier: Apache-2.0
"""Replies to messages: interface, method, parameters and errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from ....kernels.errors import KernelsError
from ....profiles.errors import ProfilesError
from ...errors import DaemonError, UsageError
from .. import protocol
from ..interface import Call, Interface, Mismatch, method, read_call
from .connection import Message, RefusalLog
from .session import Service, Session


class MessageAnswers:
    def __init__(self, service: Service, version: str) -> None:
        self.service = service
        self._version = version
        self._failures = RefusalLog()

    async def answer(self, session: Session, message: Message) -> bytes | AsyncGenerator[bytes, None] | None:
        """The reply as sent, an iterator of several, or None."""
        call: Call | None = None
        try:
            call = read_call(message.data)
            found = await self._dispatch(session, call, message)
            if isinstance(found, AsyncIterator):
                return self._several(session, call, found)
            reply = b"" if call.oneway else _encoded(found)
        except (DaemonError, KernelsError, ProfilesError) as error:
            reply = self.error(error)
        except Exception as error:
            self._failures.note(session.peer, error, unforeseen_in=call.method[:100] if call else "a message")
            reply = self.error(error)
        return None if call is not None and call.oneway else reply

    async def _several(
        self, session: Session, call: Call, replies: AsyncIterator[dict[str, Any]]
    ) -> AsyncGenerator[bytes, None]:
        try:
            async for parameters in replies:
                yield _encoded({"parameters": parameters, "continues": True})
        except (DaemonError, KernelsError, ProfilesError) as error:
            yield self.error(error)
        except Exception as error:
            self._failures.note(session.peer, error, unforeseen_in=call.method[:100])
            yield self.error(error)

    def error(self, error: BaseException) -> bytes:
        return _encoded(protocol.error_reply(error, interface=self.service.interface.name))

    async def _dispatch(self, session: Session, call: Call, message: Message) -> dict[str, Any] | AsyncIterator[dict[str, Any]]:
        definition = self.service.interface
        name, _, method = call.method.rpartition(".")
        if not name or len(call.method) > protocol.TEXT_CHARACTERS:
            return _service_error("MethodNotFound", method=call.method[:100])
        if name not in (definition.name, protocol.SERVICE):
            return _service_error("InterfaceNotFound", interface=name)
        own = name == protocol.SERVICE
        decoder = (_SERVICE if own else definition).decoders.get(method)
        if decoder is None:
            return _service_error("MethodNotFound", method=call.method)
        if call.upgrade:
            raise UsageError(f"{method}: this connection cannot be upgraded to another protocol")
        text = call.parameters if bytes(call.parameters) != b"null" else b"{}"
        try:
            parameters = decoder.decode(text)
        except Mismatch as error:
            return _service_error("InvalidParameter", parameter=error.path, message=f"{method}: {error}")
        if own:
            return self._describe(method, parameters)
        found = await self.service.call(session, method, parameters, message.attached)
        if isinstance(found, dict):
            return {"parameters": found}
        return found if call.more else _service_error("ExpectedMore")

    def _describe(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        own = self.service.interface
        if method == "GetInfo":
            interfaces = [protocol.SERVICE, own.name]
            info = {"vendor": "jetdvfs", "product": "jetdvfsd", "version": self._version, "url": "", "interfaces": interfaces}
            return {"parameters": info}
        for known in (own, _SERVICE):
            if parameters["interface"] == known.name:
                from ..definition import definition  # seldom needed

                return {"parameters": {"description": definition(known)}}
        return _service_error("InterfaceNotFound", interface=parameters["interface"][:100])


def _service_error(name: str, **parameters: str) -> dict[str, Any]:
    return {"error": f"{protocol.SERVICE}.{name}", "parameters": parameters}


_ENCODER = msgspec.json.Encoder(enc_hook=lambda value: value.item())


def _encoded(reply: dict[str, Any]) -> bytes:
    return _ENCODER.encode(reply) + b"\0"


_SERVICE = Interface(protocol.SERVICE, "Methods of every varlink service.", (
    method("GetInfo", "Maker and version of the service, and its interfaces.", {},
        {"vendor": str, "product": str, "version": str, "url": str, "interfaces": list[str]}),
    method("GetInterfaceDescription", "Definition of one of them.", {"interface": str}, {"description": str}),
), {
    "InterfaceNotFound": {"interface": str}, "MethodNotFound": {"method": str}, "MethodNotImplemented": {"method": str},
    "InvalidParameter": {"parameter": str}, "PermissionDenied": {}, "ExpectedMore": {},
})  # fmt: skip
