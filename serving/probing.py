"""Probes: does a loaded version answer, as itself, and not as its base?"""

from __future__ import annotations

from collections.abc import Sequence

from serving.engine import Answer, Engine
from serving.errors import ProbeFailed

__all__ = ["PROMPTS", "differs", "judge", "probe"]

#: Different openings, so that an adapter that was trained on one kind of text shows on at least one of them.
PROMPTS = ("Question: ", "The ", "Hello, I have a problem with my")
_TOKENS = 1
# Nats. Two runs of one model differ by rounding (bfloat16, other batches); a trained adapter by far more.
_NOISE = 1e-3


async def probe(engine: Engine, name: str, baseline: Sequence[Answer] | None) -> list[Answer]:
    """Ask ``name`` the prompts. ``baseline`` is what the base answered; None when ``name`` is the base.

    Raises:
        ProbeFailed: it does not answer, or not as itself; ``details['certain']`` says whether it would again.
    """
    answers = await engine.complete(name, PROMPTS, _TOKENS)
    judge(name, answers, baseline)
    return answers


def judge(name: str, answers: Sequence[Answer], baseline: Sequence[Answer] | None) -> None:
    """Raise `ProbeFailed` unless the answers are those of a version of its own."""
    others = sorted({answer.model for answer in answers} - {name})
    if others:
        raise ProbeFailed(f"{name} was answered by {others[0]}.", remedy="", certain=False)
    broken = [answer for answer in answers if answer.finish == "abort" or not answer.logprobs]
    if len(answers) != len(PROMPTS) or broken:
        raise ProbeFailed(f"{name} does not answer with tokens.", remedy="", certain=False)
    if baseline is not None and not any(differs(a, b) for a, b in zip(answers, baseline, strict=True)):
        raise ProbeFailed(
            f"{name} answers exactly as its base: the engine does not apply it.",
            remedy="Check what it was trained on, and that its training changed it.",
            certain=True,
        )


def differs(one: Answer, other: Answer) -> bool:
    """Whether two answers to one prompt came from different models, beyond rounding."""
    if one.text != other.text:
        return True
    for first, second in zip(one.logprobs, other.logprobs, strict=False):
        if first.keys() != second.keys():
            return True
        if any(abs(first[token] - second[token]) > _NOISE for token in first):
            return True
    return False
