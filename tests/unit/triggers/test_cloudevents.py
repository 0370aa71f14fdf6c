"""Events as messages: nothing is lost on the way, and strange messages are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.values import Event
from tests.unit.triggers.bus_suite import event
from triggers.cloudevents import decode, encode, incarnation_of, subject_of, token
from triggers.errors import MalformedMessage

texts = st.text(min_size=1, max_size=60)
data = st.dictionaries(st.text(max_size=20), st.none() | st.booleans() | st.integers() | texts, max_size=5)
times = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
events = st.builds(
    Event,
    sequence=st.integers(1, 10**15),
    id=texts,
    type=st.just("podium.alias.promoted"),
    subject=texts,
    key=texts,
    at=times,
    actor=texts,
    data=data,
    causation=st.none() | texts,
    correlation=st.none() | texts,
    traceparent=st.none() | texts,
    schema_version=st.integers(1, 9),
)


@given(events)
def test_an_event_comes_out_as_it_went_in(original: Event) -> None:
    message = encode(original, database_id="db", incarnation=3)
    assert decode(message.headers, message.payload) == original


@given(events)
def test_headers_are_printable_ascii_in_one_line(original: Event) -> None:
    message = encode(original, database_id="db", incarnation=3)
    assert all(v.isascii() and v.isprintable() and v == v.strip() for v in message.headers.values())


@given(texts)
def test_any_key_is_one_token_of_a_subject(key: str) -> None:
    encoded = token(key)
    assert encoded.isascii()
    assert not set(encoded) & set(" .*>\t\r\n")


def test_a_message_is_a_cloudevent_in_binary_mode() -> None:
    message = encode(replace(event(7), causation="c"), database_id="db", incarnation=3)
    assert message.subject == "podium.db.alias.promoted.support-bot"
    assert message.headers["ce-specversion"] == "1.0"
    assert message.headers["ce-source"] == "podium:db"
    assert message.headers["ce-sequence"].endswith("07")
    assert message.headers["ce-causationid"] == "c"
    assert message.headers["ce-authid"] == "user:ada"
    assert "ce-traceparent" not in message.headers
    assert incarnation_of(message.headers) == 3


def test_names_with_dots_stay_one_token() -> None:
    assert subject_of("db", "podium.run.failed", "a.b") == "podium.db.run.failed.a%2Eb"


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    local = replace(event(1), at=datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5))))
    message = encode(local, database_id="db", incarnation=1)
    assert decode(message.headers, message.payload).at == local.at


@pytest.mark.parametrize("without", ["specversion", "id", "type", "sequence", "partitionkey", "time"])
def test_a_message_without_an_attribute_is_refused(without: str) -> None:
    message = encode(event(1), database_id="db", incarnation=1)
    headers = {name: value for name, value in message.headers.items() if name != f"ce-{without}"}
    with pytest.raises(MalformedMessage, match=without):
        decode(headers, message.payload)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff", b"3"])
def test_a_message_whose_data_is_no_json_object_is_refused(payload: bytes) -> None:
    message = encode(event(1), database_id="db", incarnation=1)
    with pytest.raises(MalformedMessage):
        decode(message.headers, payload)


def test_a_message_without_headers_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        decode(None, b"{}")
    assert incarnation_of(None) == 0
