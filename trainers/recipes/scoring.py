"""How likely a model finds given completions: the measure under `evaluate`.

A prompt is read once and its key-value cache is used for each candidate completion, so that eight labels cost
little more than one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainers.progress import Pace
from trainers.recipes.examples import Example, Message

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Tokens = list[int]

#: With more distinct completions than this, data is not taken for a choice among labels.
MOST_LABELS = 50


@dataclass(frozen=True, slots=True)
class Scored:
    """What a model made of one example."""

    nll: float  # nats a token of the expected completion, its end-of-turn token included
    answer: str | None  # the likeliest label; None where the data is no choice among labels


def labels_of(examples: Sequence[Example]) -> list[str]:
    """The labels that a dataset chooses among, sorted; empty when its completions are free text.

    Completions are labels when there are few of them and each is used at least twice on average.
    """
    labels = sorted({example.expected for example in examples})
    return labels if len(labels) <= min(MOST_LABELS, len(examples) // 2) else []


def score(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    *,
    batch: int,
    what: str = "the model",
) -> list[Scored]:
    """Score each example, in order: the expected completion, and each label where the data has labels.

    How far it has come, and the scores so far, are told of ``what``.
    """
    pace = Pace(f"scoring {what}", len(examples))
    labels = labels_of(examples)
    prompts = [prompt_tokens(tokenizer, example.prompt) for example in examples]
    scored: dict[int, Scored] = {}
    # Prompts of like length go together: less padding, less time.
    order = sorted(range(len(examples)), key=lambda index: len(prompts[index]))
    for indices in _blocks(order, batch):
        part = [examples[index] for index in indices]
        results = _score_batch(model, tokenizer, part, [prompts[index] for index in indices], labels)
        scored.update(zip(indices, results, strict=True))
        pace.at(len(scored), _so_far(examples, scored))
    return [scored[index] for index in range(len(examples))]


def _so_far(examples: Sequence[Example], scored: Mapping[int, Scored]) -> str:
    """As in ``nll 1.23  accuracy 0.85``: of the examples that are scored already."""
    nll = sum(each.nll for each in scored.values()) / len(scored)
    right = [
        each.answer == examples[index].expected for index, each in scored.items() if each.answer is not None
    ]
    accuracy = f"  accuracy {sum(right) / len(right):.3f}" if right else ""
    return f"nll {nll:.4f}{accuracy}"


def _score_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    prompts: Sequence[Tokens],
    labels: Sequence[str],
) -> list[Scored]:
    if not labels:
        expected = [completion_tokens(tokenizer, each.prompt, each.completion) for each in examples]
        (sums,) = log_likelihoods(model, prompts, [expected])
        return [Scored(-total / len(tokens), None) for total, tokens in zip(sums, expected, strict=True)]
    prompt = examples[0].prompt
    written = {
        label: completion_tokens(tokenizer, prompt, ({"role": "assistant", "content": label},))
        for label in labels
    }
    by_label = log_likelihoods(model, prompts, [[written[label]] * len(prompts) for label in labels])
    sums_of = [dict(zip(labels, sums, strict=True)) for sums in zip(*by_label, strict=True)]
    return [
        Scored(
            nll=-sums[example.expected] / len(written[example.expected]),
            answer=max(labels, key=lambda label: sums[label]),
        )
        for example, sums in zip(examples, sums_of, strict=True)
    ]


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message]) -> Tokens:
    """A prompt as a server would render it, up to where the answer begins."""
    return _tokens(tokenizer, _prompt_text(tokenizer, prompt))


def completion_tokens(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], completion: Sequence[Message]
) -> Tokens:
    """A completion up to and with its first end-of-sequence token, where generation would stop."""
    before = _prompt_text(tokenizer, prompt)
    if tokenizer.chat_template:
        whole = str(tokenizer.apply_chat_template([*prompt, *completion], tokenize=False))
    else:
        whole = before + "\n".join(message["content"] for message in completion) + tokenizer.eos_token
    tokens = _tokens(tokenizer, whole.removeprefix(before))
    if tokenizer.eos_token_id in tokens:
        return tokens[: tokens.index(tokenizer.eos_token_id) + 1]
    return tokens


def _prompt_text(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message]) -> str:
    if tokenizer.chat_template:
        return str(tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True))
    return "\n".join(message["content"] for message in prompt)


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> Tokens:
    # A chat template writes its own special tokens; the tokenizer must not add a second start.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def log_likelihoods(
    model: PreTrainedModel, prompts: Sequence[Tokens], candidates: Sequence[Sequence[Tokens]]
) -> list[list[float]]:
    """Sums of token log-probabilities in nats: ``[c][b]`` is of ``candidates[c][b]`` after ``prompts[b]``.

    Shapes in here: B prompts, P the longest prompt, T the longest completion of a candidate.
    """
    import torch

    with torch.inference_mode():
        ids, mask = _padded(prompts, left=True, device=model.device)  # [B, P]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )
        first = read.logits[:, -1:].float().log_softmax(-1)  # [B, 1, vocabulary]
        return [
            _continue(model, copy.deepcopy(read.past_key_values), mask, first, completions)
            for completions in candidates
        ]


def _continue(
    model: PreTrainedModel,
    cache: object,
    prompt_mask: torch.Tensor,
    first: torch.Tensor,
    completions: Sequence[Tokens],
) -> list[float]:
    """Log-likelihood of one completion for each prompt of the batch. ``cache`` is used up."""
    import torch

    ids, mask = _padded(completions, left=False, device=prompt_mask.device)  # [B, T]
    log_probabilities = first
    if ids.shape[1] > 1:
        lengths = prompt_mask.sum(1, keepdim=True)  # [B, 1]
        steps = torch.arange(ids.shape[1] - 1, device=ids.device)
        rest = model(
            input_ids=ids[:, :-1],
            attention_mask=torch.cat([prompt_mask, mask[:, :-1]], 1),
            position_ids=lengths + steps,
            past_key_values=cache,
            use_cache=True,
        )
        log_probabilities = torch.cat([first, rest.logits.float().log_softmax(-1)], 1)  # [B, T, vocabulary]
    chosen = log_probabilities.gather(2, ids.unsqueeze(2)).squeeze(2)  # [B, T]
    return [float(total) for total in (chosen * mask).sum(1)]


def _padded(rows: Sequence[Tokens], *, left: bool, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and their mask, both [rows, longest row]; padding is token 0 under a mask of 0."""
    import torch

    longest = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        padding = [0] * (longest - len(row))
        ids.append(padding + row if left else row + padding)
        mask.append(padding + [1] * len(row) if left else [1] * len(row) + padding)
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _blocks(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]
