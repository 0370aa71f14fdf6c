"""Reading prompt-completion data."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import InvalidContent
from trainers.recipes.examples import Example, read_examples

TICKETS = Path(__file__).parents[3] / "examples" / "tickets"


def write(folder: Path, *lines: str) -> Path:
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_texts_become_one_message_each(tmp_path: Path) -> None:
    write(tmp_path, '{"prompt": "ping", "completion": "pong"}')
    (example,) = read_examples(tmp_path, "train")
    assert example.prompt == ({"role": "user", "content": "ping"},)
    assert example.completion == ({"role": "assistant", "content": "pong"},)


def test_a_text_and_the_same_text_as_a_message_are_the_same_example(tmp_path: Path) -> None:
    prompt = '[{"role": "user", "content": "ping"}]'
    completion = '[{"role": "assistant", "content": "pong"}]'
    chat = f'{{"prompt": {prompt}, "completion": {completion}}}'
    write(tmp_path, '{"prompt": "ping", "completion": "pong"}', chat)
    first, second = read_examples(tmp_path, "train")
    assert first.id == second.id


def test_an_id_depends_on_what_the_example_says(tmp_path: Path) -> None:
    write(tmp_path, *(f'{{"prompt": "{p}", "completion": "{c}"}}' for p, c in ("ab", "ba", "aa")))
    assert len({example.id for example in read_examples(tmp_path, "train")}) == 3


def test_an_id_does_not_change_between_releases() -> None:
    example = Example(({"role": "user", "content": "ping"},), ({"role": "assistant", "content": "pong"},))
    assert example.id == "4d45995308629f98"


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"prompt": "no completion"}',
        '{"prompt": [], "completion": "x"}',
        '{"prompt": [{"role": "user"}], "completion": "x"}',
        '{"prompt": [{"role": "user", "content": [1]}], "completion": "x"}',
        '{"prompt": 3, "completion": "x"}',
        "[]",
        '"text"',
    ],
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, '{"prompt": "ping", "completion": "pong"}', "", line)
    with pytest.raises(InvalidContent, match=r"train\.jsonl:3"):
        read_examples(tmp_path, "train")


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match=r"heldout\.jsonl"):
        read_examples(tmp_path, "heldout")


def test_a_split_without_examples_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "", "")
    with pytest.raises(InvalidContent, match="empty"):
        read_examples(tmp_path, "train")


def test_no_held_out_ticket_is_trained_on() -> None:
    train, held_out = read_examples(TICKETS, "train"), read_examples(TICKETS, "heldout")
    assert not {each.question.casefold() for each in train} & {each.question.casefold() for each in held_out}


@pytest.mark.parametrize(("split", "a_queue"), [("train", 45), ("heldout", 15)])
def test_every_queue_has_as_many_tickets(split: str, a_queue: int) -> None:
    examples = read_examples(TICKETS, split)
    queues = [example.expected for example in examples]
    assert {queue: queues.count(queue) for queue in queues} == dict.fromkeys(sorted(set(queues)), a_queue)
    assert len({example.id for example in examples}) == len(examples) == 8 * a_queue
