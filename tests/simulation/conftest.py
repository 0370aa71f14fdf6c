"""What real time and real threads would bring into a simulation is taken out of it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from registry.content import upload
from tests.simulation import clock, threads
from tests.simulation.process import current
from tests.simulation.publishing import Inline
from trainers import driving, patience, placing, reaping, watching, worker
from triggers.executor import Executor
from triggers.leadership import Leadership

_uuid4 = uuid.uuid4


def _id() -> uuid.UUID:
    """An id that the seed decides, where a world's process asks for it."""
    process = current.get()
    return _uuid4() if process is None else uuid.UUID(int=process.world.ids.getrandbits(128), version=4)


@pytest.fixture(scope="module", autouse=True)  # not the session: other tiers need real time
def _nothing_takes_real_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "ThreadPoolExecutor", Inline)
        patch.setattr(Executor._end.retry, "sleep", lambda seconds: None)  # type: ignore[attr-defined]
        patch.setitem(Leadership.__init__.__kwdefaults__, "clock", clock.monotonic)
        virtual = SimpleNamespace(monotonic=clock.monotonic, sleep=threads.sleep)
        for module in (reaping, worker, watching, patience, placing):
            patch.setattr(module, "time", virtual)
        ours = SimpleNamespace(Thread=threads.Thread, Event=threads.Event, Lock=threading.Lock)
        patch.setattr(watching, "threading", ours)
        patch.setattr(driving, "ThreadPoolExecutor", threads.Pool)
        patch.setattr(worker, "boot_clock", clock.monotonic)
        patch.setattr(worker, "secrets", SimpleNamespace(token_hex=lambda size: _id().hex[: 2 * size]))
        patch.setattr(uuid, "uuid4", _id)
        patch.setattr(worker, "describe_environment", dict)
        patch.setattr(worker, "memory_groups", lambda: None)
        yield
