"""Keys of clients: shown once, kept as hashes, delivered with the routes."""

from __future__ import annotations

import json

import pytest

from registry.errors import InvalidInput, NotFound
from registry.operations import hash_key
from registry.protocol import Registry
from registry.values import AppObject
from tests.common.registries import Place


@pytest.fixture(autouse=True)
def declared(registry: Registry) -> None:
    objects = [AppObject("app", "deployment", "router", {"base": "tiny:production", "serves": {}})]
    registry.apps.apply("app", objects, plan=registry.apps.plan("app", objects))


def test_without_keys_nobody_needs_one(registry: Registry) -> None:
    assert registry.deployments.routes("router").keys is None
    assert registry.client_keys.list("router") == []


def test_a_key_is_given_out_once_and_kept_as_a_hash(registry: Registry) -> None:
    made = registry.client_keys.add("router", "the website")
    assert made.secret.startswith(f"podium-{made.key.id}-") and len(made.secret) > 50
    assert made.secret not in repr(made)
    (kept,) = registry.client_keys.list("router")
    assert (kept, kept.label, kept.created_by) == (made.key, "the website", "user:ada")
    assert kept.sha256 == hash_key(made.secret)
    assert registry.deployments.routes("router").keys == {kept.id: kept.sha256}


def test_two_keys_have_nothing_in_common(registry: Registry) -> None:
    one, other = registry.client_keys.add("router"), registry.client_keys.add("router")
    assert one.key.id != other.key.id
    assert one.secret.rpartition("-")[2] != other.secret.rpartition("-")[2]


def test_each_change_raises_the_generation_of_the_routes(registry: Registry) -> None:
    def generation() -> int:
        return registry.deployments.routes("router").generation

    made = registry.client_keys.add("router")
    assert generation() == 1
    registry.client_keys.revoke("router", made.key.id)
    assert generation() == 2
    registry.client_keys.revoke("router", made.key.id)
    assert generation() == 2
    registry.client_keys.open("router")
    assert generation() == 3
    registry.client_keys.open("router")
    assert generation() == 3


def test_revoking_the_last_key_closes_the_deployment_and_does_not_open_it(registry: Registry) -> None:
    made = registry.client_keys.add("router")
    revoked = registry.client_keys.revoke("router", made.key.id)
    assert revoked.revoked_at is not None
    assert registry.deployments.routes("router").keys == {}
    registry.client_keys.open("router")
    assert registry.deployments.routes("router").keys is None


def test_a_removed_deployment_keeps_its_keys_so_that_the_next_of_its_name_is_closed(
    registry: Registry,
) -> None:
    made = registry.client_keys.add("router")
    registry.deployments.forget("router")
    assert registry.deployments.routes("router").keys == {made.key.id: made.key.sha256}


def test_an_unknown_key_and_a_label_that_cannot_be_shown_are_refused(registry: Registry) -> None:
    with pytest.raises(NotFound, match="no key 'beef'"):
        registry.client_keys.revoke("router", "beef")
    for label in ("x" * 101, "\x1b[2J"):
        with pytest.raises(InvalidInput):
            registry.client_keys.add("router", label)


def test_no_secret_stands_in_an_event_or_in_the_database(registry: Registry, place: Place) -> None:
    made = registry.client_keys.add("router", "the website")
    secret = made.secret.split("-", 2)[2]
    events = registry.events.after(0, limit=100)
    rekeyed = [e for e in events if e.type == "podium.deployment.rekeyed"]
    assert [(e.subject, e.data["key"]) for e in rekeyed] == [("router", made.key.id)]
    assert all(secret not in json.dumps(dict(e.data)) and made.key.sha256 not in str(e.data) for e in events)
    if place.is_sqlite:
        files = place.settings.home.glob("podium.db*")
        assert all(secret.encode() not in file.read_bytes() for file in files)
