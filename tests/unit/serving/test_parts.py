"""Of what a deployment is made on this machine, with HAProxy and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.child import Child
from serving.deployment import Deployment
from serving.errors import EngineUnavailable
from serving.haproxy import PROXY_LOG
from serving.parts import parts_on_this_machine

ONE = Deployment("router", base="tiny:v1")
TWO = Deployment("router", base="tiny:v1", replicas=2)


@pytest.fixture
def haproxy(tmp_path: Path) -> str:
    """An executable of that name; nothing is started here."""
    file = tmp_path / "bin" / "haproxy"
    file.parent.mkdir()
    file.touch(mode=0o755)
    return str(file)


def test_without_haproxy_one_replica_is_asked_directly(tmp_path: Path) -> None:
    parts = parts_on_this_machine("/nowhere/haproxy")(ONE, tmp_path)
    assert (list(parts.engines), parts.front) == ([0], None)


def test_without_haproxy_several_replicas_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="2 replicas, which needs HAProxy") as refused:
        parts_on_this_machine("/nowhere/haproxy")(TWO, tmp_path)
    assert "PODIUM_HAPROXY" in refused.value.remedy


def test_with_haproxy_there_is_room_for_a_second_colour_and_the_address_stays(
    tmp_path: Path, haproxy: str
) -> None:
    make = parts_on_this_machine(haproxy)
    parts = make(TWO, tmp_path / "router")
    assert list(parts.engines) == [0, 1, 2, 3] and parts.front is not None
    port = Child(tmp_path / "router" / "proxy", PROXY_LOG).record
    make(TWO, tmp_path / "router")
    again = Child(tmp_path / "router" / "proxy", PROXY_LOG).record
    assert port is not None and again is not None and port.port == again.port


def test_the_address_of_a_replica_that_was_asked_directly_becomes_the_proxys(
    tmp_path: Path, haproxy: str
) -> None:
    before = Child(tmp_path / "replica-0").prepare(None, "x", "tiny:v1")
    parts_on_this_machine(haproxy)(ONE, tmp_path)
    after = Child(tmp_path / "proxy", PROXY_LOG).record
    assert after is not None and after.port == before.port


def test_places_that_were_ever_used_are_looked_at(tmp_path: Path, haproxy: str) -> None:
    (tmp_path / "replica-7").mkdir()
    assert list(parts_on_this_machine(haproxy)(ONE, tmp_path).engines) == [0, 1, 7]
