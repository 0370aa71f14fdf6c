"""Names of the headers that podium's client and server understand beside HTTP's own."""

from __future__ import annotations

#: Raised when an operation changes in a way that older clients or servers would misunderstand.
API_LEVEL = 1
#: The oldest client that this server understands, and the oldest server that this client does.
OLDEST_LEVEL = 1

PREFIX = "/api/v1"

LEVEL = "podium-api"  # the sender's API_LEVEL
ACTOR = "podium-actor"  # on whose behalf a write happens
LEASE = "podium-lease"  # the lease that must still stand, percent-encoded
EPOCH = "podium-epoch"  # ... and its epoch
CAUSATION = "podium-causation"
CORRELATION = "podium-correlation"
TRANSACTION = "podium-transaction"  # the open transaction that a request is part of
IDEMPOTENCY = "idempotency-key"  # the same for each attempt of one write

PROBLEM = "application/problem+json"

#: Characters that an opaque id of a client's own (idempotency key, transaction) may have at most.
LONGEST_ID = 100
