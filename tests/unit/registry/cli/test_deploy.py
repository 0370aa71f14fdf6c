"""`podium deploy`: a plan first, then all of it or nothing; and files that cannot be deployed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from registry.protocol import Registry
from tests.common.registries import Maker
from tests.unit.registry.cli.conftest import Podium

APP = """
from registry import App, Gate, Threshold

app = App("support")
accurate = Gate("accurate", "bot", "production", Threshold(metric="accuracy", on="held-out:v1", at_least=%s))
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An app file in a project of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "app.py").write_text(APP % 0.8)
    return folder / "app.py"


def stored(registry: Registry) -> dict[str, int]:
    return {found.name: found.revision for found in registry.apps.objects("gate")}


def test_deploying_adds_changes_and_removes(podium: Podium, registry: Registry, app: Path) -> None:
    first = podium("deploy", app, "--json").json
    assert (first["app"], first["applied"]) == ("support", True)
    assert {(c["change"], c["kind"], c["name"]) for c in first["changes"]} == {
        ("add", "code", "support"),
        ("add", "gate", "accurate"),
    }
    assert stored(registry) == {"accurate": 1}
    app.write_text(APP % 0.9)
    changed = podium("deploy", app).stdout
    assert "rule.at_least: 0.8 -> 0.9" in changed
    assert re.search(r"bundle: [0-9a-f]{12} -> [0-9a-f]{12}", changed)
    assert stored(registry) == {"accurate": 2}
    app.write_text("from registry import App\napp = App('support')\n")
    asked = podium("deploy", app)
    assert (asked.status, "1 object is removed" in asked.stderr, "--yes" in asked.stderr) == (2, True, True)
    assert stored(registry) == {"accurate": 2}
    assert podium("deploy", app, "--yes").status == 0
    assert stored(registry) == {}


def test_a_plan_changes_nothing(podium: Podium, registry: Registry, app: Path) -> None:
    shown = podium("deploy", app, "--plan")
    assert "bot:production needs accuracy >= 0.8 on held-out:v1" in shown.stdout
    assert "nothing was changed" in shown.stdout
    assert registry.apps.objects() == []


def test_deploying_again_keeps_what_is_there(podium: Podium, registry: Registry, app: Path) -> None:
    podium("deploy", app)
    again = podium("deploy", app, "--json").json
    assert not again["applied"]
    assert {change["change"] for change in again["changes"]} == {"keep"}


def test_a_deployed_gate_guards_the_alias(podium: Podium, bot: Maker, app: Path) -> None:
    podium("deploy", app)
    refused = podium("promote", "bot:v1", "production")
    assert refused.status == 1
    assert "podium evaluate bot:v1 --on held-out:v1" in refused.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name\n", "app.py, line 1 cannot be imported: ModuleNotFoundError"),
        ("x = 1\nraise ValueError('no')\n", "app.py, line 2 cannot be imported: ValueError: no"),
        ("def broken(:\n", "app.py, line 1 cannot be imported: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "app.py, line 2 cannot be imported: SystemExit"),
        (
            APP % 0.8 + "again = Gate('accurate', 'bot', 'candidate', accurate.rule)\n",
            "two gates named 'accurate'",
        ),
        (APP % 0.8 + "other = App('other')\n", "declares 2 apps"),
        ("from registry import App\napp = App('Two Words')\n", "cannot name an artifact"),
        (APP.replace("production", "v7") % 0.8, "cannot be an alias"),
        (APP % "None", "no bound"),
        ("", "declares nothing"),
        ("from registry import App\napp = App('support')\n", "declares nothing"),
    ],
)
def test_a_file_that_cannot_be_deployed(
    podium: Podium, registry: Registry, app: Path, text: str, said: str
) -> None:
    app.write_text(text)
    failed = podium("deploy", app)
    assert failed.status == 2
    assert said in failed.stderr
    assert len(failed.stderr.splitlines()) >= 2
    assert registry.apps.objects() == []


@pytest.mark.parametrize("room", ["trainers.py", "registry.py", "serving/__init__.py"])
def test_a_folder_with_a_module_of_our_name_is_refused_with_the_advice_to_rename(
    podium: Podium, registry: Registry, app: Path, room: str
) -> None:
    shadow = app.parent / room
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("")
    failed = podium("deploy", app)
    assert failed.status == 2
    assert "Rename" in failed.stderr
    assert registry.apps.objects() == []


@pytest.mark.parametrize("path", ["missing.py", "pyproject.toml", "."])
def test_a_path_that_is_no_python_file(podium: Podium, app: Path, path: str) -> None:
    failed = podium("deploy", app.parent / path)
    assert failed.status == 2
    assert "There is no Python file" in failed.stderr


def test_a_name_of_another_app_is_refused(podium: Podium, registry: Registry, app: Path) -> None:
    podium("deploy", app)
    app.write_text((APP % 0.8).replace('"support"', '"sales"'))
    failed = podium("deploy", app)
    assert failed.status == 2
    assert "belongs to app 'support'" in failed.stderr
    assert stored(registry) == {"accurate": 1}


@pytest.mark.parametrize("bound", ["float('nan')", "float('inf')", "-float('inf')"])
def test_a_gate_without_a_number_is_refused(
    podium: Podium, registry: Registry, app: Path, bound: str
) -> None:
    app.write_text(APP % bound)
    assert "of a gate on 'accuracy'" in podium("deploy", app).stderr
    assert stored(registry) == {}


@pytest.mark.parametrize("name", ["", "Accurate", "a b", "accurat\\udcffe"])
def test_a_gate_has_a_name_as_everything_has(podium: Podium, app: Path, name: str) -> None:
    app.write_text((APP % 0.8).replace('"accurate"', f'"{name}"'))
    failed = podium("deploy", app)
    assert (failed.status, "cannot name" in failed.stderr) == (2, True)


def test_objects_that_answer_to_every_name_declare_nothing(
    podium: Podium, registry: Registry, app: Path
) -> None:
    app.write_text(
        APP % 0.8
        + """
from unittest.mock import MagicMock

class Lazy:
    def __getattr__(self, name):
        raise RuntimeError(name)

mock, lazy = MagicMock(), Lazy()
"""
    )
    assert podium("deploy", app).status == 0
    assert stored(registry) == {"accurate": 1}


def test_leave_for_a_pause_is_given_with_the_deploy_and_taken_back_with_the_next(
    podium: Podium, registry: Registry, app: Path
) -> None:
    app.write_text(
        (APP % 0.8) + "from serving import Deployment\nrouter = Deployment('router', base='tiny:v1')\n"
    )

    def may_pause() -> bool:
        (router,) = registry.apps.objects("deployment")
        return bool(router.body["allow_downtime"])

    assert podium("deploy", app).status == 0 and not may_pause()
    assert "allow_downtime: no -> yes" in podium("deploy", app, "--allow-downtime").stdout
    assert may_pause()
    assert podium("deploy", app).status == 0 and not may_pause()
