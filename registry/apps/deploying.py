"""From a user's file to the objects that `podium deploy` stores."""

from __future__ import annotations

import tempfile
from pathlib import Path

from registry.apps.loading import LoadedFile, load_file
from registry.capture import make_bundle
from registry.errors import InvalidApp
from registry.protocol import Registry
from registry.values import AppObject

CODE = "code"  # kind of the object that names an app's bundle


def prepare(registry: Registry, file: Path) -> tuple[str, list[AppObject]]:
    """The app's name and its declared objects, with the stored bundle of the code that declares them.

    Raises:
        InvalidApp: the file cannot be imported, declares two objects of one name, or declares nothing and
            never did.
    """
    loaded = load_file(file)
    objects = loaded.objects()
    if not objects and not registry.apps.objects(app=loaded.app):
        raise InvalidApp(
            f"{file.name} declares nothing.",
            remedy="Give it gates, triggers, subscriptions or deployments as objects of the module.",
        )
    return loaded.app, [*objects, store_code(registry, loaded)]


def store_code(registry: Registry, loaded: LoadedFile) -> AppObject:
    """Store the file and what it imports from its own project, so that any machine can run its handlers."""
    with tempfile.TemporaryDirectory(prefix="podium-bundle-") as scratch:
        folder = Path(scratch) / "bundle"
        make_bundle(loaded.path, folder, root=loaded.root)
        stored = registry.catalog.store(folder, "bundle")
    path = loaded.path.relative_to(loaded.root).as_posix()
    return AppObject(loaded.app, CODE, loaded.app, {"bundle": stored.digest, "file": path})
