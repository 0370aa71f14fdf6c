"""Which version a rollback goes to."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.rollback import Move, rollback_target
from registry.values import Action

P, R, X = Action.PROMOTE, Action.ROLLBACK, Action.REVERT


def target(
    *moves: tuple[Action, int], lived: Collection[int] | None = None, deleted: Collection[int] = ()
) -> int | None:
    history = [Move(generation, action, to) for generation, (action, to) in enumerate(moves, start=1)]
    return rollback_target(history, lived, deleted)


@pytest.mark.parametrize("moves", [(), ((P, 1),), ((P, 1), (P, 2), (R, 1)), ((P, 1), (R, 1))])
def test_there_is_nothing_before_the_first_version(moves: tuple[tuple[Action, int], ...]) -> None:
    assert target(*moves) is None


def test_it_is_the_version_before() -> None:
    assert target((P, 1), (P, 2)) == 1
    assert target((P, 1), (P, 2), (P, 3)) == 2


def test_twice_goes_two_back() -> None:
    assert target((P, 1), (P, 2), (P, 3), (R, 2)) == 1


def test_a_promotion_after_a_rollback_returns_to_where_the_rollback_went() -> None:
    assert target((P, 1), (P, 2), (R, 1), (P, 3)) == 1


def test_a_version_that_was_rolled_away_from_is_not_returned_to() -> None:
    assert target((P, 1), (P, 2), (P, 3), (R, 2), (P, 4)) == 2
    assert target((P, 1), (P, 2), (P, 3), (R, 2), (P, 4), (R, 2)) == 1


def test_a_version_that_came_twice_counts_each_time() -> None:
    assert target((P, 1), (P, 2), (P, 1)) == 2
    assert target((P, 1), (P, 2), (P, 1), (R, 2)) == 1


def test_going_to_a_named_version_takes_what_came_after_it_away() -> None:
    assert target((P, 1), (P, 2), (P, 3), (P, 4), (R, 2)) == 1


def test_a_revert_takes_back_the_promotion_that_failed() -> None:
    assert target((P, 1), (P, 2), (P, 3), (X, 2)) == 1
    assert target((P, 1), (P, 2), (P, 3), (X, 2), (P, 4)) == 2


def test_what_serving_never_brought_live_is_passed_over() -> None:
    assert target((P, 1), (P, 2), (P, 3), lived={1, 3}) == 1


def test_the_version_of_now_need_not_have_lived() -> None:
    assert target((P, 1), (P, 2), lived={1}) == 1


def test_a_failed_first_promotion_has_nothing_to_go_back_to() -> None:
    assert target((P, 1), lived=set()) is None


def test_after_a_rollback_what_lived_earlier_is_found() -> None:
    assert target((P, 1), (P, 2), (P, 3), (P, 4), (R, 2), lived={1, 2, 4, 5}) == 1


def test_what_was_deleted_is_passed_over() -> None:
    assert target((P, 1), (P, 2), (P, 3), deleted={2}) == 1
    assert target((P, 1), (P, 2), deleted={1}) is None


MOVES = st.lists(st.tuples(st.sampled_from(Action), st.integers(1, 4)), min_size=1, max_size=12)


@given(MOVES)
def test_it_is_always_another_version_that_held_the_alias(moves: list[tuple[Action, int]]) -> None:
    found = target(*moves)
    assert found is None or found in {to for _, to in moves[:-1]} - {moves[-1][1]}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8, unique=True))
def test_after_promotions_alone_rollbacks_walk_them_back_one_by_one(order: list[int]) -> None:
    moves = [(P, version) for version in order]
    walked = []
    while (found := target(*moves)) is not None:
        walked.append(found)
        moves.append((R, found))
    assert walked == order[-2::-1]
