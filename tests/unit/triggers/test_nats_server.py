"""The plan of the embedded server: the same as before where that is possible."""

from __future__ import annotations

import json
from typing import Any

import pytest

from registry.processes import Process
from triggers.connection import Role
from triggers.nats_server import ServerPlan, plan_server, server_config

OTHER_PORT = 4999


def planned(kept: Any, *, free: bool = True) -> ServerPlan:
    return plan_server(kept, lambda _: free, lambda: OTHER_PORT)


def kept(plan: ServerPlan) -> Any:
    return json.loads(json.dumps(plan.to_json(Process.current(), Process.current())))


def test_a_first_plan_has_a_secret_for_each_role() -> None:
    plan = planned(None)
    assert plan.port == OTHER_PORT
    assert set(plan.users) == set(Role)
    assert len({user.password for user in plan.users.values()}) == len(Role)


def test_port_and_secrets_are_kept() -> None:
    first = ServerPlan(4222, planned(None).users)
    assert planned(kept(first)) == first


def test_a_port_that_somebody_else_took_is_given_up_and_the_secrets_kept() -> None:
    first = ServerPlan(4222, planned(None).users)
    assert planned(kept(first), free=False) == ServerPlan(OTHER_PORT, first.users)


@pytest.mark.parametrize(
    "damaged", [[], {}, {"port": "x", "users": {}}, {"port": 1, "users": {"relay": 3}}, "text"]
)
def test_a_damaged_file_leads_to_a_new_plan(damaged: Any) -> None:
    assert planned(damaged).port == OTHER_PORT


def test_secrets_do_not_show_when_a_plan_is_printed() -> None:
    plan = planned(None)
    assert all(user.password not in repr(plan) for user in plan.users.values())


def test_the_server_listens_on_the_loopback_and_syncs_before_it_acknowledges(tmp_path: Any) -> None:
    config = server_config(planned(None), tmp_path, 10)
    assert config["listen"].startswith("127.0.0.1:")
    assert config["jetstream"]["sync_interval"] == "always"
