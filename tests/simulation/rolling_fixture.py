"""What real time and real files would bring into a simulated deployment is taken out of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from serving import execution, leadership, reconcile
from serving.controller import Controller
from tests.simulation import clock
from tests.simulation.serving import digest_of


def nothing_of_serving_takes_real_time() -> Iterator[None]:
    """A fixture: the world's clock for the controllers, and digests for what they read of files."""
    with pytest.MonkeyPatch.context() as patch:
        now = SimpleNamespace(time=clock.monotonic, monotonic=clock.monotonic)
        patch.setattr(reconcile, "time", now)
        patch.setitem(Controller.__init__.__kwdefaults__, "clock", clock.monotonic)
        patch.setitem(leadership.Leadership.__init__.__kwdefaults__, "monotonic", clock.monotonic)
        patch.setattr(execution, "adapter_facts", lambda path, **_: digest_of(str(path)))
        patch.setattr(execution, "base_facts", lambda path, *, digest: SimpleNamespace(digest=digest))
        patch.setattr(execution, "preflight", lambda adapter, base, *, max_rank: ())
        yield
