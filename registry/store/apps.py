"""Declared objects: what `podium deploy` makes so."""

from __future__ import annotations

import json
from collections.abc import Sequence

from registry.database.engine import Transaction, to_time
from registry.database.statements import sql
from registry.errors import AliasMoved, InvalidApp
from registry.store.session import Session, to_json
from registry.values import AppChange, AppObject, ChangeKind

_OBJECTS = sql("""
    SELECT app, kind, name, body, revision, changed_at FROM app_object
    WHERE (CAST(:kind AS TEXT) IS NULL OR kind = :kind) AND (CAST(:app AS TEXT) IS NULL OR app = :app)
    ORDER BY app, kind, name
""")
_OWNER = sql("SELECT app FROM app_object WHERE kind = :kind AND name = :name AND app <> :app")
_PUT = sql("""
    INSERT INTO app_object (app, kind, name, target, body, revision, changed_at)
    VALUES (:app, :kind, :name, :target, :body, 1, :now)
    ON CONFLICT (app, kind, name) DO UPDATE
    SET target = excluded.target, body = excluded.body, revision = app_object.revision + 1, changed_at = :now
""")
_REMOVE = sql("DELETE FROM app_object WHERE app = :app AND kind = :kind AND name = :name")


class StoredApps:
    def __init__(self, session: Session) -> None:
        self._session = session

    def plan(self, app: str, objects: Sequence[AppObject]) -> list[AppChange]:
        with self._session.reading() as reader:
            return _plan(reader, app, objects)

    def apply(self, app: str, objects: Sequence[AppObject], *, plan: Sequence[AppChange]) -> None:
        with self._session.writing() as transaction:
            if _plan(transaction, app, objects) != list(plan):
                raise AliasMoved(
                    f"App '{app}' was deployed by somebody else since this plan was made.",
                    remedy="Run 'podium deploy' again and look at the new plan.",
                )
            for change in plan:
                _make_so(transaction, app, change, self._session)

    def objects(self, kind: str | None = None, *, app: str | None = None) -> list[AppObject]:
        with self._session.reading() as reader:
            return _objects(reader, kind, app)


def _objects(reader: Transaction, kind: str | None, app: str | None) -> list[AppObject]:
    rows = reader.all(_OBJECTS, kind=kind, app=app)
    return [
        AppObject(app, kind, name, json.loads(body), revision, to_time(at))
        for app, kind, name, body, revision, at in rows
    ]


def _plan(reader: Transaction, app: str, objects: Sequence[AppObject]) -> list[AppChange]:
    """Compare what is declared with what is stored."""
    stored = {(o.kind, o.name): o.body for o in _objects(reader, None, app)}
    declared = {(o.kind, o.name): json.loads(to_json(o.body)) for o in objects}
    if len(declared) != len(objects):
        raise InvalidApp(f"App '{app}' declares two objects of one name.", remedy="Rename one of them.")
    for kind, name in declared:
        _refuse_foreign(reader, app, kind, name)
    changes = []
    for kind, name in sorted(stored.keys() | declared.keys()):
        before, after = stored.get((kind, name)), declared.get((kind, name))
        changes.append(AppChange(_change(before, after), kind, name, before, after))
    return changes


def _change(before: object, after: object) -> ChangeKind:
    if before is None:
        return ChangeKind.ADD
    if after is None:
        return ChangeKind.REMOVE
    return ChangeKind.KEEP if before == after else ChangeKind.CHANGE


def _refuse_foreign(reader: Transaction, app: str, kind: str, name: str) -> None:
    owner = reader.first(_OWNER, kind=kind, name=name, app=app)
    if owner is not None:
        raise InvalidApp(
            f"The {kind} '{name}' belongs to app '{owner[0]}'.",
            remedy="Rename it, or remove it from the other app and deploy that first.",
        )


def _make_so(transaction: Transaction, app: str, change: AppChange, session: Session) -> None:
    if change.change is ChangeKind.REMOVE:
        transaction.execute(_REMOVE, app=app, kind=change.kind, name=change.name)
    elif change.change is not ChangeKind.KEEP:
        transaction.execute(
            _PUT,
            app=app,
            kind=change.kind,
            name=change.name,
            target=str((change.after or {}).get("alias", "")),
            body=to_json(change.after),
            now=session.now(),
        )
