"""Model cards: what the registry knows, in a form that the Hub's own library reads."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st

from registry.cards.card import card_of
from registry.cards.front_matter import front_matter
from registry.errors import NotFound
from registry.protocol import Registry
from registry.values import Parent, Role, Version
from tests.common.registries import Maker, Place

HOSTILE = "<img src=x>|`*\n# no"


@pytest.fixture
def place(sqlite_place: Place) -> Place:
    """What a card says does not depend on the database."""
    return sqlite_place


@pytest.fixture
def version(registry: Registry, make: Maker) -> Version:
    """An adapter with lineage and two evaluations of the same kind."""
    base, data, held_out = make.model("smollm2"), make.dataset("tickets"), make.dataset("tickets-held-out")
    registry.catalog.tag(base.ref, {"hub": "HuggingFaceTB/SmolLM2-135M"})
    parents = [Parent(base.ref, Role.BASE), Parent(data.ref, Role.DATA)]
    made = make.adapter("ticket-router", parents=parents)
    for value in (0.74, 0.81):
        make.report(made, held_out, value, base=0.41, examples={"1": 1.0, "2": 0.0}, name="scores")
    return registry.catalog.tag(made.ref, {"license": "apache-2.0", "note": HOSTILE})


def test_the_hubs_library_reads_what_the_version_is_made_from_and_how_it_scored(
    registry: Registry, version: Version
) -> None:
    data = ModelCard(card_of(registry, version.ref)).data
    assert data.base_model == "HuggingFaceTB/SmolLM2-135M"
    assert (data.datasets, data.library_name, data.license) == (["tickets"], "peft", "apache-2.0")
    assert "podium" in (data.tags or [])
    (result,) = data.eval_results or []  # the newest of its kind alone
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.81)
    assert (result.dataset_name, result.dataset_type) == ("tickets-held-out:v1", "tickets-held-out")
    assert result.dataset_revision == registry.catalog.resolve("tickets-held-out:v1").digest


def test_people_read_lineage_scores_and_how_to_get_it(registry: Registry, version: Version) -> None:
    text = card_of(registry, version.ref)
    assert "podium pull ticket-router:v1 ticket-router-v1" in text
    assert "| base | smollm2:v1 ([HuggingFaceTB/SmolLM2-135M]" in text
    assert "| accuracy | 0.81 | 0.41 | 2 | tickets-held-out:v1 | scores:v2 by evaluate |" in text


def test_no_text_of_a_user_becomes_markup(registry: Registry, version: Version) -> None:
    text = card_of(registry, version.ref)
    assert r"| note | \<img src=x\>\|\`\* \# no |" in text
    assert "<img" not in text.replace(r"\<img", "")


def test_a_version_of_which_nothing_is_known_has_a_card_too(registry: Registry, make: Maker) -> None:
    card = ModelCard(card_of(registry, make.model("tiny").ref))
    assert card.data.library_name == "transformers"
    assert "Nothing has judged it." in card.text
    with pytest.raises(NotFound):
        card_of(registry, "tiny:v9")


def _names() -> st.SearchStrategy[str]:
    return st.from_regex(r"x[a-z_-]{0,5}", fullmatch=True)


def _mapping(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(_names(), values, min_size=1, max_size=3)


_TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1)
_SCALAR = (
    _TEXT | st.sampled_from(["no", "1e3", "2026-12-01", "~", "a: b", "- a"]) | st.integers() | st.booleans()
)
_VALUE = _SCALAR | _mapping(_SCALAR) | st.lists(_SCALAR | _mapping(_SCALAR), min_size=1, max_size=3)


@given(_mapping(_VALUE | _mapping(_VALUE)))
def test_front_matter_is_yaml_that_gives_back_what_was_written(data: dict[str, Any]) -> None:
    head = front_matter(data).removeprefix("---\n").removesuffix("---\n")
    assert yaml.safe_load(head) == data
