"""The table of operations: complete, unambiguous, and described."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from registry.store.stored import StoredRegistry
from registry.wire.table import BY_HAND, FACETS, operations
from tests.common.registries import ServedPlace
from tests.unit.registry.http.conftest import Api


@pytest.mark.parametrize("facet", sorted(FACETS))
def test_every_method_of_the_protocol_is_reached_over_http(facet: str) -> None:
    methods = {f"{facet}.{name}" for name in vars(FACETS[facet]) if not name.startswith("_")}
    assert methods == {o.name for o in operations() if o.facet == facet} | {
        name for name in BY_HAND if name.startswith(f"{facet}.")
    }


def test_no_two_operations_have_one_address() -> None:
    addresses = Counter((o.verb, re.sub(r"\{[^}]*\}", "{}", o.path)) for o in operations())
    assert [address for address, count in addresses.items() if count > 1] == []


def test_the_description_names_roles_models_and_problems(place: ServedPlace, api: Api) -> None:
    document = api().get("/openapi.json").json()
    promote = document["paths"]["/api/v1/versions/{reference}/promotions"]["post"]
    assert promote["x-podium-role"] == "promoter"
    assert promote["tags"] == ["promotions"]
    assert "Promotion" in str(promote["responses"]["200"])
    assert promote["responses"]["403"]["content"]["application/problem+json"]
    assert "Problem" in document["components"]["schemas"]
    assert document["security"] == [{"token": []}]


def test_reading_never_needs_more_than_a_viewer(beneath: StoredRegistry) -> None:
    secretive = {"identity.audit", "identity.tokens", "client_keys.list"}
    assert {o.name for o in operations() if o.verb == "GET" and not o.reads} == secretive
