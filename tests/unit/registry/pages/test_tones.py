"""Colours of states."""

from __future__ import annotations

from registry.pages.tones import RUN_TONES
from registry.runs import RunState


def test_every_state_of_a_run_has_a_tone_and_only_one_that_goes_on_is_busy() -> None:
    assert set(RUN_TONES) == set(RunState)
    assert [state for state, tone in RUN_TONES.items() if tone == "busy"] == [RunState.RUNNING]
