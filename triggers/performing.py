"""Carrying out a trigger's action."""

from __future__ import annotations

import json
import time
from typing import Any

from registry.errors import AliasHeld, AliasNotFound
from registry.references import Reference
from registry.resources import Resources
from registry.runs import RunRequest
from registry.values import AppObject, Role
from triggers.actions import Action, Notify, Promote, QueueRun, filled
from triggers.context import Context
from triggers.errors import InvalidAction
from triggers.received import Received, fields_of
from triggers.webhooks import Webhook, keys_of, networks_of, send, signed


def perform(action: Action, event: Received[Any], context: Context, code: AppObject | None) -> None:
    """Do what a trigger says. ``code`` is the object that names the bundle of its app.

    Raises:
        AliasHeld: the alias may not be moved by a trigger until a person releases it.
        PodiumError: it could not be done.
    """
    match action:
        case QueueRun():
            _queue_run(action, event, context, code)
        case Promote():
            _promote(action, event, context)
        case Notify():
            _notify(action, event, context)


def _queue_run(action: QueueRun, event: Received[Any], context: Context, code: AppObject | None) -> None:
    fields = fields_of(event)
    task, bundle = _located(action.task, code)
    request = RunRequest(
        task=task,
        arguments={n: filled(v, fields) if isinstance(v, str) else v for n, v in action.arguments.items()},
        inputs={name: filled(reference, fields) for name, reference in action.inputs.items()},
        roles={name: Role(role) for name, role in action.roles.items()},
        code=bundle,
        resources=Resources.from_json(action.resources),
        pool=action.pool,
        publish=None if action.publish is None else filled(action.publish, fields),
        retries=action.retries,
        app=context.subscription.partition("/")[0],
        # The same for every attempt of this delivery, so that a repeat finds the run that is there.
        key=context.idempotency_key,
    )
    with context.transaction() as registry:
        registry.runs.queue(request)


def _located(task: str, code: AppObject | None) -> tuple[str, str | None]:
    """The task's name and its bundle. A recipe's name stands alone; any other is one of the app's code."""
    file, colon, name = task.rpartition(":")
    if not colon:
        return task, None
    if code is None:
        raise InvalidAction(
            f"The code of the task '{task}' was not deployed with its trigger.",
            remedy="Deploy the app again with this podium.",
        )
    return f"{file or code.body['file']}:{name}", str(code.body["bundle"])


def _promote(action: Promote, event: Received[Any], context: Context) -> None:
    if event.ref is None:
        raise InvalidAction(f"The event {event.id} is about no version.")
    artifact = Reference.parse(event.ref).name
    # Asked first, because a refused promotion is an event, and one of each attempt would be noise.
    if _is_held(context, artifact, action.alias):
        raise AliasHeld(
            f"'{artifact}:{action.alias}' is held; triggers may not move it.",
            remedy=f"A person releases it with: podium release {artifact} {action.alias}",
            artifact=artifact,
            alias=action.alias,
        )
    reason = filled(action.reason, fields_of(event))
    with context.transaction() as registry:
        registry.promotions.promote(event.ref, action.alias, reason=reason)


def _is_held(context: Context, artifact: str, alias: str) -> bool:
    try:
        return context.registry.promotions.get(artifact, alias).held_by is not None
    except AliasNotFound:
        return False


def _notify(action: Notify, event: Received[Any], context: Context) -> None:
    body = {
        "specversion": "1.0",
        "id": event.id,
        "type": event.type.value,
        "source": f"podium:{context.registry.database_id}",
        "subject": event.subject,
        "time": event.at.isoformat(),
        "datacontenttype": "application/json",
        "authid": event.actor,
        "data": event.data.model_dump(mode="json"),
    }
    headers = {"content-type": "application/cloudevents+json", "idempotency-key": context.idempotency_key}
    webhook = Webhook(action.url, context.idempotency_key, json.dumps(body).encode(), headers)
    settings = context.registry.settings
    keys = keys_of(settings.notify_secret.get_secret_value()) if settings.notify_secret else []
    send(webhook, signed(webhook, keys, int(time.time())), networks_of(settings.notify_networks))
