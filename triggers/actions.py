"""What a trigger does: actions as values, stored by `podium deploy`, carried out without a user's code.

Texts may hold placeholders that are filled from the event: ``{ref}`` (the version, as ``name:v7``),
``{event}`` (its id), ``{what}`` (its type and subject), ``{actor}``, and each field of the event's data, such
as ``{artifact}`` or ``{alias}``.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from registry.errors import InvalidReference
from registry.events import DATA, EventType
from registry.references import check_alias
from registry.runs import RunRequest
from registry.values import Role
from triggers.errors import InvalidAction
from triggers.webhooks import parse_url

_ALWAYS = frozenset({"ref", "event", "what", "actor"})


@runtime_checkable
class Requestable(Protocol):
    """A task of `trainers`, which knows what to ask the registry for."""

    def request(self, arguments: Mapping[str, Any]) -> RunRequest: ...


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Queue a run of a task.

    ``task`` is the name of a recipe, ``FILE:TASK`` or ``:TASK`` for a task of the app's own file. ``inputs``
    are references (or placeholders for them), ``arguments`` plain values, ``roles`` what inputs are to the
    result where the task has no say in it. Use `queue_run` to declare it from a task itself.
    """

    task: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    pool: str = "default"
    publish: str | None = None  # artifact of which the result becomes a version
    retries: int = 0

    kind: ClassVar[str] = "queue-run"

    def texts(self) -> list[str]:
        values = (*self.inputs.values(), *self.arguments.values(), self.publish)
        return [value for value in values if isinstance(value, str)]

    def check(self) -> None:
        unknown = set(self.roles.values()) - {role.value for role in Role}
        if unknown:
            raise InvalidAction(
                f"'{min(unknown)}' is no role of an input.", remedy=f"Roles are {', '.join(Role)}."
            )


@dataclass(frozen=True, slots=True)
class Promote:
    """Move an alias of the event's artifact to the event's version, behind the alias's gates."""

    alias: str
    reason: str = "{what}"

    kind: ClassVar[str] = "promote"

    def texts(self) -> list[str]:
        return [self.reason]

    def check(self) -> None:
        try:
            check_alias(self.alias)
        except InvalidReference as error:
            raise InvalidAction(error.message, remedy=error.remedy) from error


@dataclass(frozen=True, slots=True)
class Notify:
    """Send the event to a URL: a POST of the CloudEvent as JSON, signed where a secret is set.

    The signature is that of Standard Webhooks, and ``webhook-id`` is the same for every attempt. Redirects
    are not followed, and private addresses are not connected to unless a setting allows it.
    """

    url: str

    kind: ClassVar[str] = "notify"

    def texts(self) -> list[str]:
        return []

    def check(self) -> None:
        parse_url(self.url)


Action = QueueRun | Promote | Notify
_ACTIONS: dict[str, type[Action]] = {cls.kind: cls for cls in (QueueRun, Promote, Notify)}


def queue_run(task: Requestable | str, **arguments: Any) -> QueueRun:
    """`QueueRun` of a task with these arguments: ``queue_run(train, data="tickets:v1", base="{ref}")``.

    A task given by name cannot say which arguments are artifacts: then those are that look like references
    (``name:v1``, ``name:alias``, ``name@sha256:...`` or ``{ref}``).
    """
    if isinstance(task, str):
        inputs = {name: v for name, v in arguments.items() if isinstance(v, str) and _is_reference(v)}
        plain = {name: value for name, value in arguments.items() if name not in inputs}
        return QueueRun(task, inputs, plain)
    request = task.request(arguments)
    module = getattr(task, "__module__", "")
    own = not str(module).startswith("trainers.")
    return QueueRun(
        f":{request.task}" if own else request.task,
        inputs=request.inputs,
        arguments=request.arguments,
        roles={name: role.value for name, role in request.roles.items()},
        resources=request.resources.to_json(),
        pool=request.pool,
        publish=request.publish,
        retries=request.retries,
    )


def _is_reference(text: str) -> bool:
    return text == "{ref}" or ((":" in text or "@" in text) and "/" not in text and " " not in text)


def check_action(action: Action, types: frozenset[EventType]) -> None:
    """Raise `InvalidAction` unless all events of ``types`` have what the action needs."""
    action.check()
    known = frozenset.intersection(*(frozenset(DATA[type].model_fields) for type in types)) | _ALWAYS
    for text in action.texts():
        for name in placeholders(text):
            if name not in known:
                raise InvalidAction(
                    f"'{{{name}}}' in '{text}' is nothing that its events carry.",
                    remedy=f"They carry {', '.join(sorted(known))}.",
                )
    if isinstance(action, Promote) and "artifact" not in known:
        raise InvalidAction(
            "These events are about no artifact that could be promoted.",
            remedy="Use OnArtifact, OnEvaluation, OnPromotion or OnRollout.",
        )


def placeholders(text: str) -> list[str]:
    """The names in braces in a text."""
    try:
        return [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise InvalidAction(f"'{text}' has a brace too many or too few: {error}.") from error


def filled(text: str, fields: Mapping[str, str]) -> str:
    """A text with its placeholders filled in."""
    try:
        return text.format_map(fields)
    except (KeyError, IndexError, AttributeError) as error:
        raise InvalidAction(f"The event has no {error} for '{text}'.") from error


def action_to_json(action: Action) -> dict[str, Any]:
    """The action as plain JSON values."""
    return {"do": action.kind, **asdict(action)}


def action_from_json(body: Mapping[str, Any]) -> Action:
    """The action that `action_to_json` wrote.

    Raises:
        InvalidAction: it is of another podium, or damaged.
    """
    fields = dict(body)
    try:
        return _ACTIONS[fields.pop("do")](**fields)
    except (KeyError, TypeError) as error:
        raise InvalidAction(
            f"An action cannot be read: {error}.", remedy="Deploy the app again with this podium."
        ) from error
