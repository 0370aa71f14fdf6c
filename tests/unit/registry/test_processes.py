from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from registry.processes import Process, is_known_dead


def test_a_process_that_lives_is_not_dead() -> None:
    assert Process.current().is_alive
    assert not is_known_dead(Process.current().to_text())


def test_a_process_that_has_ended_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = Process.of(child.pid)
        assert not is_known_dead(process.to_text())
    assert is_known_dead(process.to_text())


def test_another_process_with_its_number_is_not_taken_for_it() -> None:
    earlier = replace(Process.current(), started=Process.current().started - 1000)
    assert is_known_dead(earlier.to_text())


@pytest.mark.parametrize("field", ["boot", "namespace"])
def test_of_a_process_of_another_machine_or_container_nothing_is_known(field: str) -> None:
    elsewhere = replace(Process.current(), pid=2**22 + 1, **{field: "another"})
    assert not is_known_dead(elsewhere.to_text())
    assert not elsewhere.is_alive


@pytest.mark.parametrize("text", ["", "[]", "worker-1", '{"pid": "x"}'])
def test_of_a_holder_that_names_no_process_nothing_is_known(text: str) -> None:
    assert not is_known_dead(text)
