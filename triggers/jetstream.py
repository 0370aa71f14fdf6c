"""The event stream on NATS JetStream."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    Header,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
)

from registry.errors import BrokerUnavailable
from registry.values import Event
from triggers.bus import Condition, Outcome, Stored, Stream, StreamState
from triggers.cloudevents import decode, encode, subject_prefix, token
from triggers.connection import Connection, translated
from triggers.errors import MalformedMessage, StreamAhead
from triggers.tasks import wait_for_event

#: Seconds for which the stream remembers message ids; about 225 bytes of memory each.
DUPLICATE_WINDOW = 48 * 3600.0
#: Bytes that one stream may hold; then the oldest events go. They stay in the database.
STREAM_BYTES = 2**30

_ACK_SECONDS = 30.0
_API_SECONDS = 5.0
_FORGET_SECONDS = 30 * 24 * 3600.0  # a durable reader that nobody used for so long is removed

# Error codes of the JetStream API.
_WRONG_LAST_ID, _WRONG_LAST_SEQUENCE = 10070, 10071
_OTHER_STREAM, _SUBJECTS_TAKEN, _NO_SUCH_STREAM = 10060, 10065, 10059


class JetStreamBus:
    """`Bus` over a NATS server or cluster with JetStream."""

    def __init__(
        self, connection: Connection, *, stream_bytes: int = STREAM_BYTES, replicas: int = 1
    ) -> None:
        self.connection = connection
        self._replicas = replicas
        self._stream_bytes = stream_bytes

    async def state(self, stream: Stream) -> StreamState:
        with translated():
            return await self.connection.waiting(self._state(stream))

    async def _state(self, stream: Stream) -> StreamState:
        jetstream = await self._jetstream()
        info = await _info(jetstream, stream.name)
        if info is None:
            return StreamState(Condition.ABSENT)
        if info.config.subjects != _subjects(stream):
            return StreamState(Condition.ASIDE)
        if info.state.last_seq == 0:
            return StreamState(Condition.EMPTY)
        last = await _stored(jetstream, stream.name, info.state.last_seq)
        return StreamState(Condition.FILLED, last) if last else StreamState(Condition.FOREIGN)

    async def create(self, stream: Stream) -> None:
        with translated():
            await self.connection.waiting(self._create(stream))

    async def _create(self, stream: Stream) -> None:
        jetstream = await self._jetstream()
        try:
            await jetstream.add_stream(self._config(stream))
        except nats.js.errors.APIError as error:
            if error.err_code != _SUBJECTS_TAKEN:
                raise
            await self._put_older_aside(jetstream, stream)
            await jetstream.add_stream(self._config(stream))

    async def publish(self, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        message = encode(event, database_id=stream.database_id, incarnation=stream.incarnation)
        expected = (
            (Header.EXPECTED_LAST_SEQUENCE, "0") if after is None else (Header.EXPECTED_LAST_MSG_ID, after)
        )
        headers = {
            **message.headers,
            Header.MSG_ID.value: event.id,
            Header.EXPECTED_STREAM.value: stream.name,
            expected[0].value: expected[1],
        }
        with translated():
            jetstream = await self._jetstream()
            try:
                sent = jetstream.publish(message.subject, message.payload, headers=headers)
                ack = await self.connection.waiting(sent)
            except nats.js.errors.NoStreamResponseError:
                return Outcome.ABSENT
            except nats.js.errors.APIError as error:
                return _outcome_of(error)
        return Outcome.DUPLICATE if ack.duplicate else Outcome.STORED

    async def find(self, stream: Stream, sequence: int) -> Stored | None:
        with translated():
            return await self.connection.waiting(self._find(stream, sequence))

    async def _find(self, stream: Stream, sequence: int) -> Stored | None:
        jetstream = await self._jetstream()
        info = await _info(jetstream, stream.name)
        if info is None or info.state.last_seq == 0:
            return None
        last = await _stored(jetstream, stream.name, info.state.last_seq)
        # Both count without gaps, so one message tells where every other lies.
        position = info.state.last_seq - (last.sequence - sequence) if last else 0
        if position < 1:
            return None
        return await _stored(jetstream, stream.name, position)

    async def reader(self, stream: Stream, consumer: str, *, after: int) -> JetStreamReader:
        with translated():
            return await self.connection.waiting(self._reader(stream, token(consumer), after))

    async def _reader(self, stream: Stream, durable: str, after: int) -> JetStreamReader:
        jetstream = await self._jetstream()
        info = await _info(jetstream, stream.name)
        if info is None:
            raise _no_stream(stream)
        try:
            await jetstream.consumer_info(stream.name, durable)
        except nats.js.errors.NotFoundError:
            start = await self._position_behind(jetstream, stream, info, after)
            await jetstream.add_consumer(stream.name, _durable(durable, start))
        reader = JetStreamReader(self.connection, stream, durable)
        await reader.start()
        return reader

    async def close(self) -> None:
        await self.connection.close()

    async def _jetstream(self) -> JetStreamContext:
        client = await self.connection.client()
        return client.jetstream(timeout=_API_SECONDS)

    def _config(self, stream: Stream) -> StreamConfig:
        return StreamConfig(
            name=stream.name,
            description="podium's events, in the order of their commit",
            subjects=_subjects(stream),
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            discard=DiscardPolicy.OLD,
            max_bytes=self._stream_bytes,
            duplicate_window=DUPLICATE_WINDOW,
            num_replicas=self._replicas,
            deny_delete=True,
            deny_purge=True,
        )

    async def _put_older_aside(self, jetstream: JetStreamContext, stream: Stream) -> None:
        """Take the subjects from streams of lower incarnations; keep one of them, for a person to look at."""
        for info in await jetstream.streams_info():
            prefix, _, number = (info.config.name or "").rpartition("-")
            if prefix != f"podium-{stream.database_id}" or not number.isdigit():
                continue
            if int(number) > stream.incarnation:
                raise _ahead(stream, int(number))
            if int(number) < stream.incarnation - 1:
                await jetstream.delete_stream(info.config.name or "")
            elif int(number) < stream.incarnation:
                aside = [f"podium-aside.{stream.database_id}.{number}"]
                await jetstream.update_stream(info.config, subjects=aside)

    async def _position_behind(
        self, jetstream: JetStreamContext, stream: Stream, info: StreamInfo, after: int
    ) -> int:
        """Where in the stream the event follows whose sequence in the database is ``after``."""
        if info.state.last_seq == 0:
            return 1
        last = await _stored(jetstream, stream.name, info.state.last_seq)
        return 1 if last is None else max(1, info.state.last_seq - (last.sequence - after) + 1)


class JetStreamReader:
    """A durable pull consumer whose request for more is always open.

    The client library's ``fetch`` waits until a batch is full or the time is over, and dies with the
    connection. This one hands out what has come as soon as it has come, and asks anew when a request has
    expired or the connection was made again.
    """

    def __init__(self, connection: Connection, stream: Stream, durable: str) -> None:
        self._connection = connection
        self._stream = stream
        self._durable = durable
        self._client: Client | None = None
        self._subscription: Subscription | None = None
        self._arrived: deque[Msg] = deque()
        self._news = asyncio.Event()
        self._asked_for = 0  # messages that the open request may still bring
        self._expires = 0.0
        self._failure: str | None = None
        self._last: Msg | None = None

    async def start(self) -> None:
        client = await self._connection.client()
        self._client = client
        self._subscription = await client.subscribe(client.new_inbox(), cb=self._receive)
        self._connection.on_reconnect.append(self._forget_request)

    async def fetch(self, limit: int, timeout: float) -> Sequence[Event]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        with translated():
            while not self._arrived:
                left = deadline - loop.time()
                if left <= 0:
                    return []
                await self._ask(limit, timeout)
                if not await wait_for_event(self._news, min(left, max(0.01, self._expires - loop.time()))):
                    continue
                self._news.clear()
                if self._failure:
                    raise BrokerUnavailable(f"The event stream cannot be read: {self._failure}.")
        taken = [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]
        self._last = taken[-1]
        return [event for event in map(_decoded, taken) if event is not None]

    async def acknowledge(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            with translated():
                client = await self._connection.client()
                # The consumer's policy makes it count for all that came before, too.
                await client.publish(last.reply, b"+ACK")

    async def close(self) -> None:
        if self._forget_request in self._connection.on_reconnect:
            self._connection.on_reconnect.remove(self._forget_request)
        if self._subscription is not None and self._client is not None and not self._client.is_closed:
            with translated():
                await self._subscription.unsubscribe()

    async def _receive(self, message: Msg) -> None:
        status = (message.headers or {}).get(Header.STATUS.value)
        if status is None:
            self._asked_for -= 1
            self._arrived.append(message)
        elif status in ("404", "408"):  # the request has expired with nothing, or with less than it asked for
            self._asked_for = 0
        elif status != "100":
            # 409: the consumer or its stream was deleted, or the request was refused.
            self._failure = (message.headers or {}).get("Description") or status
        self._news.set()

    async def _ask(self, limit: int, timeout: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._asked_for > 0 and now < self._expires:
            return
        client = await self._connection.client()
        if client is not self._client:
            raise BrokerUnavailable("The connection to the event server was lost.")
        assert self._subscription is not None
        request = {"batch": limit, "expires": int(timeout * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream.name}.{self._durable}"
        self._asked_for, self._expires = limit, now + timeout + 0.1
        await client.publish(subject, json.dumps(request).encode(), reply=self._subscription.subject)

    def _forget_request(self) -> None:
        self._asked_for = 0
        self._news.set()


def _subjects(stream: Stream) -> list[str]:
    """What the stream that events are published to listens to."""
    return [f"{subject_prefix(stream.database_id)}.>"]


def _decoded(message: Msg) -> Event | None:
    try:
        return decode(message.headers, message.data)
    except MalformedMessage:
        return None  # not ours: whoever wrote it, it is no fact


async def _info(jetstream: JetStreamContext, name: str) -> StreamInfo | None:
    try:
        return await jetstream.stream_info(name)
    except nats.js.errors.NotFoundError:
        return None


async def _stored(jetstream: JetStreamContext, name: str, position: int) -> Stored | None:
    """Which of our events lies at a position of the stream; None for anything else."""
    try:
        raw = await jetstream.get_msg(name, seq=position)
        event = decode(raw.headers, raw.data or b"")
    except (nats.js.errors.NotFoundError, MalformedMessage):
        return None
    return Stored(event.sequence, event.id)


def _durable(name: str, start: int) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=name,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=start,
        ack_policy=AckPolicy.ALL,
        ack_wait=_ACK_SECONDS,
        max_deliver=-1,
        max_ack_pending=10_000,
        inactive_threshold=_FORGET_SECONDS,
    )


def _outcome_of(error: nats.js.errors.APIError) -> Outcome:
    if error.err_code in (_WRONG_LAST_ID, _WRONG_LAST_SEQUENCE):
        return Outcome.REFUSED
    if error.err_code in (_OTHER_STREAM, _NO_SUCH_STREAM):
        return Outcome.ABSENT
    raise error


def _ahead(stream: Stream, found: int) -> StreamAhead:
    return StreamAhead(
        f"Incarnation {found} of the event stream is there, but the database is at {stream.incarnation}: "
        "the database was probably restored from a backup.",
        remedy="Check that this is the right database, then run 'podium events adopt'.",
        found=found,
        incarnation=stream.incarnation,
    )


def _no_stream(stream: Stream) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"The event stream '{stream.name}' is not there.", remedy="The relay of 'podium up' makes it."
    )
