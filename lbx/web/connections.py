"""One connection: so long for a request, so many for a person, and for all who have shown no link yet."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lbx.web import limits


class Connection(H11Protocol):
    """uvicorn's, within ``lbx.web.limits``."""

    _due: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _awaited: object = None

    @property
    def person(self) -> str:
        """Whom the gate let in with the last request; "" for nobody."""
        return str(self.scope["state"].get("person", "")) if self.scope else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.since = self.loop.time()
        self._watch()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(limits.UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._due)
        _cancel(self._unread)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no request gets an answer, unless it comes behind a request whose answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _watch(self) -> None:
        """Once for what the other side has to send next; pieces of it give it no more time."""
        awaited = self.conn.their_state
        if awaited is self._awaited:
            return
        _cancel(self._due)
        self._awaited = awaited
        seconds = {h11.IDLE: limits.HEADERS_S, h11.SEND_BODY: limits.BODY_S}.get(awaited)
        if seconds is not None:
            self._due = self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        by_person = defaultdict(list)
        for one in self.connections:
            assert isinstance(one, Connection)
            by_person[one.person].append(one)
        for person, held in by_person.items():
            most = limits.OF_A_PERSON if person else limits.STRANGERS
            for oldest in sorted(held, key=lambda one: one.since)[: max(0, len(held) - most)]:
                self.connections.discard(oldest)
                oldest.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
