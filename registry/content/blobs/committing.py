"""Making written files durable, many with one wait for the disk.

A file system with a journal makes everything durable that was done before with the one thing it is asked for.
So one thread does the asking: while it waits for the disk, files gather, and the next wait serves them all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_SYNCS_AT_ONCE = 4  # so that the disk has the next file's bytes before it has told of the last one's


@dataclass(frozen=True)
class _Written:
    aside: Path  # where the bytes are now
    final: Path  # the name it shall have
    durable: Future[None] = field(default_factory=Future)


class Committer:
    """Gives files below ``root`` their names once their bytes are durable."""

    def __init__(self, root: Path, translate: Callable[[OSError], Exception]) -> None:
        self._root = root
        self._translate = translate
        self._lock = threading.Lock()
        self._gathered: list[_Written] = []
        self._is_running = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._syncers = ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="sync")

    def commit(self, aside: Path, final: Path) -> Future[None]:
        """Rename ``aside`` to ``final``; the future is done when bytes and name would survive a power cut."""
        written = _Written(aside, final)
        with self._lock:
            self._gathered.append(written)
            if not self._is_running:
                self._thread.submit(self._run)
                self._is_running = True
        return written.durable

    def close(self) -> None:
        """Finish what was asked for."""
        self._thread.shutdown()
        self._syncers.shutdown()

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._commit(batch)
            except BaseException as error:  # whoever waits for a file must hear of it
                for written in batch:
                    if not written.durable.done():
                        written.durable.set_exception(error)

    def _commit(self, batch: list[_Written]) -> None:
        """All bytes before any name, and all names before the folders that hold them."""
        synced = self._syncers.map(lambda written: self._did(written, _sync), batch)
        whole = [written for written, went_well in zip(batch, synced, strict=True) if went_well]
        self._sync_folders([written for written in whole if self._did(written, _rename)])

    def _take(self) -> list[_Written]:
        with self._lock:
            batch, self._gathered = self._gathered, []
            self._is_running = bool(batch)
            return batch

    def _did(self, written: _Written, step: Callable[[_Written], None]) -> bool:
        """Do a step for a file; False if it failed, which its future then says."""
        try:
            step(written)
        except OSError as error:
            with suppress(OSError):
                written.aside.unlink()
            written.durable.set_exception(self._translate(error))
            return False
        return True

    def _sync_folders(self, named: list[_Written]) -> None:
        """Sync every folder on the way to the names: somebody may have made them just now."""
        try:
            for folder in {folder for written in named for folder in self._way_to(written.final)}:
                sync_folder(folder)
        except OSError as error:
            for written in named:
                written.durable.set_exception(self._translate(error))
        else:
            for written in named:
                written.durable.set_result(None)

    def _way_to(self, path: Path) -> Iterator[Path]:
        for folder in path.parents:
            yield folder
            if folder == self._root:
                return


def _sync(written: _Written) -> None:
    descriptor = os.open(written.aside, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(written: _Written) -> None:
    written.final.parent.mkdir(parents=True, exist_ok=True)
    written.aside.rename(written.final)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
