"""What a mistyped name may have meant."""

from __future__ import annotations

from registry.suggesting import close_to, did_you_mean


def test_what_is_close_is_asked_about_and_nothing_else() -> None:
    known = ["ticket-router", "tickets", "smollm2"]
    assert did_you_mean("tiket-router", known) == "Did you mean ticket-router?"
    assert did_you_mean("tiket", known, "See the list.") == "Did you mean tickets? See the list."
    assert did_you_mean("zebra", known, "See the list.") == "See the list."
    assert did_you_mean("zebra", known) == ""


def test_what_is_too_long_to_be_a_slip_is_not_compared() -> None:
    assert close_to("x" * 10_000, ["x" * 9_999]) == []
