"""The alias middleware: the only door of a vLLM process.

It runs *inside* vLLM (``--middleware podium_middleware.AliasMiddleware``), so this package uses the standard
library alone, imports nothing of podium, runs on Python 3.10, and is copied beside each replica before it
starts. It

- turns a served name into the version that is live: ``ticket-router`` becomes ``ticket-router:v7``, and the
  answer says so in ``model`` and in the header ``x-podium-version``;
- takes the whole map of routes, with the keys of clients, on one control path, and refuses an older one, by
  (incarnation, epoch, generation) and the id of this boot;
- counts what is being answered by each version, and refuses to unload one that is routed to or in use;
- lets clients reach the inference paths and nothing else, with a key where there are keys, and with bounds on
  what they send and how long they take. Load, unload, control and vLLM's own metrics need the token that was
  made for this start.

A request is judged when it is admitted: its whole body has arrived, and in the same step without an
``await`` its key is checked, its version is looked up and counted. So nothing is admitted to a version after
the map that replaced it was applied.
"""

from .asgi import App, Receive, Scope, Send
from .bounds import BODY_LIMIT_VARIABLE, Bounds
from .door import (
    DRAIN_PATH,
    FENCE_HEADER,
    INFERENCE_PATHS,
    LOAD_PATH,
    MAP_PATH,
    MODELS_PATH,
    STATE_PATH,
    TOKEN_HEADER,
    TOKEN_VARIABLE,
    UNLOAD_PATH,
    AliasMiddleware,
)
from .problem import Problem
from .routes import Fence, RouteMap
from .switchboard import Switchboard

__all__ = [
    "BODY_LIMIT_VARIABLE",
    "DRAIN_PATH",
    "FENCE_HEADER",
    "INFERENCE_PATHS",
    "LOAD_PATH",
    "MAP_PATH",
    "MODELS_PATH",
    "STATE_PATH",
    "TOKEN_HEADER",
    "TOKEN_VARIABLE",
    "UNLOAD_PATH",
    "AliasMiddleware",
    "App",
    "Bounds",
    "Fence",
    "Problem",
    "Receive",
    "RouteMap",
    "Scope",
    "Send",
    "Switchboard",
]
