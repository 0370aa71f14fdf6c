"""podium's protocols under faults, in one thread and in virtual time.

The code is the real one: registry over SQLite, relay, deliveries, uploads, journal. What lies around it is
simulated: processes that are killed and paused (`process`), a clock that jumps to the next thing to happen
(`clock`), a database that goes away or loses the answer to a commit (`storage`), a broker and a blob store
that forget and delay (`broker`, `blobs`). A `World` holds them; one seed decides all that is left to chance.

`oracle` compares what was acknowledged, the history and the raw stream. ``PODIUM_SIMULATIONS=20`` runs twenty
times as many random schedules as usual.
"""
