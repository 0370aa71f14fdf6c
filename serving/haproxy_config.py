"""The configuration of a deployment's HAProxy: a pure function, so that a restart routes as before.

Places for replicas are fixed (`SLOTS`), so that routing is changed over the running process's socket and the
process is replaced only when something else changes. What is read here of HAProxy's answers is described in
its management guide, section 9.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "BACKEND",
    "SLOTS",
    "ServerState",
    "answer_of",
    "configuration",
    "own_statuses",
    "server_states",
    "shape",
]

BACKEND = "replicas"
SLOTS = 64  # more than two colours of the largest deployment
_NOWHERE = "127.0.0.1:1"
# Requests whose body is at most this long are whole before a replica is chosen, and can be given to another
# one when a replica refuses them or goes away before its first byte. Longer ones pass too, without that.
_BUFFER_BYTES = 128 * 1024
_MOST_CONNECTIONS = 8000

_HEAD = """\
# Written by podium; changes are overwritten.
global
    log stdout format raw daemon notice
    stats socket unix@admin.sock mode 600 level admin expose-fd listeners
    maxconn {connections}
    nbthread 2
    noreuseport
    hard-stop-after 10m
    tune.bufsize {buffer}

defaults
    mode http
    log global
    option dontlog-normal
    option dontlognull
    option idle-close-on-response
    option redispatch 1
    retries 4
    # A replica that is about to stop answers 503, one that was killed nothing: another one is asked then.
    retry-on conn-failure empty-response 503
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout http-request 60s
    timeout http-keep-alive 5m
    timeout queue 30s
    timeout check 10s

frontend clients
    bind {host}:{port}
    option http-buffer-request
    http-request deny deny_status 404 if {{ path_beg -i /podium }}
    http-request del-header x-podium-token
    http-request del-header x-podium-fence
    http-error status 404 content-type application/json file 404.json
    http-error status 408 content-type application/json file 408.json
    http-error status 502 content-type application/json file 502.json
    http-error status 503 content-type application/json file 503.json
    http-error status 504 content-type application/json file 504.json
    default_backend {backend}

backend {backend}
    balance leastconn
    option httpchk GET /health
    # A vLLM with much to do is slow to answer a check and must not be taken for a dead one.
    default-server inter 2s fastinter 500ms fall 3 rise 1 pool-purge-delay 2s
"""

_ERRORS = {
    404: ("NotFoundError", "This path is not open to clients."),
    408: ("TimeoutError", "The request did not arrive in time."),
    502: ("BadGatewayError", "The replica that was asked did not answer to the end."),
    503: ("ServiceUnavailableError", "No replica is ready to answer."),
    504: ("GatewayTimeoutError", "The replica that was asked did not answer in time."),
}


@dataclass(frozen=True, slots=True)
class ServerState:
    """One place as the running process has it."""

    endpoint: str  # "http://127.0.0.1:40123"
    gets_requests: bool
    sessions: int


def configuration(port: int, backends: Mapping[int, str], host: str = "127.0.0.1") -> str:
    """The file's text; ``backends`` says which places (below `SLOTS`) get requests, and where they are."""
    head = _HEAD.format(
        connections=_MOST_CONNECTIONS, buffer=_BUFFER_BYTES, host=host, port=port, backend=BACKEND
    )
    servers = [_server(index, backends.get(index)) for index in range(SLOTS)]
    return head + "".join(f"    {server}\n" for server in servers)


def _server(index: int, endpoint: str | None) -> str:
    if endpoint is None:
        return f"server r{index} {_NOWHERE} check disabled"
    return f"server r{index} {endpoint.removeprefix('http://')} check"


def shape(port: int, host: str = "127.0.0.1") -> str:
    """A digest of all that a running process cannot be told over its socket."""
    return hashlib.sha256(configuration(port, {}, host).encode()).hexdigest()[:16]


def answer_of(status: int) -> dict[str, object]:
    """The body that the proxy itself answers with, in the shape that OpenAI clients read."""
    kind, message = _ERRORS[status]
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def own_statuses() -> list[int]:
    """The statuses that the proxy itself may answer with."""
    return sorted(_ERRORS)


def server_states(stat: str) -> dict[int, ServerState]:
    """Read the answer to ``show stat``: every place that was ever given an address."""
    rows = csv.DictReader(stat.removeprefix("# ").splitlines())
    found = {}
    for row in rows:
        if row["pxname"] != BACKEND or not row["svname"].startswith("r") or row["addr"] == _NOWHERE:
            continue
        state = row["status"]
        found[int(row["svname"][1:])] = ServerState(
            endpoint=f"http://{row['addr']}",
            gets_requests=not state.startswith(("MAINT", "DRAIN")),
            sessions=int(row["scur"] or 0),
        )
    return found
