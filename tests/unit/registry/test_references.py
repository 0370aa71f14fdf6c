"""The grammar of names, aliases and references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidReference
from registry.references import Reference, check_alias, check_name, parse_version_number

NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,99}", fullmatch=True).filter(lambda name: ".." not in name)
ALIASES = st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True).filter(
    lambda alias: alias != "latest" and not (alias[0] == "v" and alias[1:].isdigit())
)
REFERENCES = st.one_of(
    st.builds(Reference, NAMES),
    st.builds(Reference, NAMES, version=st.integers(1, 999_999_999)),
    st.builds(Reference, NAMES, alias=ALIASES),
    st.builds(Reference, NAMES, digest=st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)),
)


@given(REFERENCES)
def test_a_reference_reads_as_what_it_was_written_from(reference: Reference) -> None:
    assert Reference.parse(str(reference)) == reference


@given(st.text(max_size=400))
def test_any_text_is_a_reference_or_is_refused_with_a_remedy(text: str) -> None:
    try:
        reference = Reference.parse(text)
    except InvalidReference as refusal:
        assert refusal.remedy
        assert refusal.message.isascii()
        assert len(refusal.message) < 300
    else:
        check_name(reference.name)
        assert Reference.parse(str(reference)) == reference


@pytest.mark.parametrize(
    "name", ["a", "0", "support-bot", "smollm2-135m.instruct_v2", "a" * 100, "v7", "latest"]
)
def test_these_may_name_an_artifact(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a b", "Support", "-bot", ".bot", "_bot", "a..b", "a/b", "a:b", "a@b", "bot\n", "a\tb"),
        *(
            "böt",
            "\N{CYRILLIC SMALL LETTER A}bot",
            "\N{ARABIC-INDIC DIGIT ONE}",
            "a" * 101,
            "a" * 300,
            "a\0b",
        ),
    ],
)
def test_these_may_not(name: str) -> None:
    with pytest.raises(InvalidReference, match="cannot name an artifact"):
        check_name(name)


@pytest.mark.parametrize("alias", ["production", "a", "v", "v7-canary", "vx", "a" * 63, "latest-good"])
def test_these_may_be_an_alias(alias: str) -> None:
    assert check_alias(alias) == alias


@pytest.mark.parametrize("alias", ["latest", "v7", "v0", "v123456789", "v1234567890"])
def test_an_alias_may_not_read_as_a_version(alias: str) -> None:
    with pytest.raises(InvalidReference, match="would read as a version"):
        check_alias(alias)


@pytest.mark.parametrize(
    "alias",
    [
        *(
            "",
            "Prod",
            "pro duction",
            "pro..d",
            "pro.d",
            "1st",
            "-a",
            "a_b",
            "a\n",
            "pr\N{CYRILLIC SMALL LETTER O}d",
        ),
        "a" * 64,
    ],
)
def test_these_may_not_be_an_alias(alias: str) -> None:
    with pytest.raises(InvalidReference, match="cannot be an alias"):
        check_alias(alias)


@pytest.mark.parametrize(
    "text", ["bot:latest", "bot:v0", "bot:v1234567890", "bot:", "bot:a:b", "bot@", "bot@sha256:12", ":v1"]
)
def test_these_are_no_references(text: str) -> None:
    with pytest.raises(InvalidReference):
        Reference.parse(text)


@pytest.mark.parametrize(
    "text", ["7", "v", "v0", "v01", "v-1", "V1", "v1 ", "v1.0", "latest", "v\N{FULLWIDTH DIGIT ONE}"]
)
def test_a_version_is_v_and_a_number_from_one(text: str) -> None:
    with pytest.raises(InvalidReference):
        parse_version_number(text)


def test_a_message_does_not_repeat_an_endless_or_unprintable_name() -> None:
    with pytest.raises(InvalidReference) as refusal:
        check_name("x" * 5000 + "\x1b[31m")
    assert len(refusal.value.message) < 200
    with pytest.raises(InvalidReference) as refusal:
        check_name("\x1b[31mred")
    assert "\x1b" not in refusal.value.message


def test_what_changes_something_must_say_which_version_it_means() -> None:
    with pytest.raises(InvalidReference, match="which version to promote"):
        Reference.parse("bot").require_explicit("promote")
    explicit = Reference.parse("bot:v1")
    assert explicit.require_explicit("promote") is explicit
