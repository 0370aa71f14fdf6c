"""The first schema: every table with its keys, checks and indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_answer()
    _create_app_object()
    _create_approval()
    _create_artifact()
    _create_audit()
    _create_block()
    _create_chunk()
    _create_client_key()
    _create_consumer()
    _create_content()
    _create_deployment_condition()
    _create_deployment_intent()
    _create_event()
    _create_lease()
    _create_podium()
    _create_protection()
    _create_replica()
    _create_rollout()
    _create_route_table()
    _create_token()
    _create_worker()
    _create_content_chunk()
    _create_delivery()
    _create_route()
    _create_subscription()
    _create_value()
    _create_edge()
    _create_evaluation()
    _create_run()
    _create_version()
    _create_alias()
    _create_attempt()
    _create_checkpoint()
    _create_example_score()
    _create_promotion()
    _create_run_input()
    _create_run_log()
    _create_run_measure()
    _create_run_output()
    _create_score()
    _create_tag()


def downgrade() -> None:
    op.drop_table("tag")
    op.drop_table("score")
    op.drop_table("run_output")
    op.drop_table("run_measure")
    op.drop_table("run_log")
    op.drop_table("run_input")
    op.drop_table("promotion")
    op.drop_table("example_score")
    op.drop_table("checkpoint")
    op.drop_table("attempt")
    op.drop_table("alias")
    op.drop_table("version")
    op.drop_table("run")
    op.drop_table("evaluation")
    op.drop_table("edge")
    op.drop_table("value")
    op.drop_table("subscription")
    op.drop_table("route")
    op.drop_table("delivery")
    op.drop_table("content_chunk")
    op.drop_table("worker")
    op.drop_table("token")
    op.drop_table("route_table")
    op.drop_table("rollout")
    op.drop_table("replica")
    op.drop_table("protection")
    op.drop_table("podium")
    op.drop_table("lease")
    op.drop_table("event")
    op.drop_table("deployment_intent")
    op.drop_table("deployment_condition")
    op.drop_table("content")
    op.drop_table("consumer")
    op.drop_table("client_key")
    op.drop_table("chunk")
    op.drop_table("block")
    op.drop_table("audit")
    op.drop_table("artifact")
    op.drop_table("approval")
    op.drop_table("app_object")
    op.drop_table("answer")


def _create_answer() -> None:
    op.create_table(
        "answer",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("request", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("token", "key"),
    )
    op.create_index("answer_at", "answer", ["at"])


def _create_app_object() -> None:
    op.create_table(
        "app_object",
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("target", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("changed_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("app", "kind", "name"),
        sa.UniqueConstraint("kind", "name"),
    )
    op.create_index("app_object_target", "app_object", ["kind", "target"])


def _create_approval() -> None:
    op.create_table(
        "approval",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("artifact", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("approval_digest", "approval", ["digest"])


def _create_artifact() -> None:
    op.create_table(
        "artifact",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("last_number", sa.Integer(), nullable=False),
        sa.Column("version_count", sa.Integer(), nullable=False),
        sa.Column("bytes_total", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("token", sa.String(), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_block() -> None:
    op.create_table(
        "block",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("base_digest", sa.String(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("deployment", "digest", "base_digest", "engine"),
    )


def _create_chunk() -> None:
    op.create_table(
        "chunk",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'present'"), nullable=False),
        sa.CheckConstraint("state IN ('present', 'condemned', 'deleting')", name="chunk_state"),
        sa.PrimaryKeyConstraint("key"),
    )


def _create_client_key() -> None:
    op.create_table(
        "client_key",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("revoked_at", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("deployment", "id"),
    )


def _create_consumer() -> None:
    op.create_table(
        "consumer",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _create_content() -> None:
    op.create_table(
        "content",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )


def _create_deployment_condition() -> None:
    op.create_table(
        "deployment_condition",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("holds", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("since", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("deployment", "type"),
    )


def _create_deployment_intent() -> None:
    op.create_table(
        "deployment_intent",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("paused", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("deployment"),
    )


def _create_event() -> None:
    op.create_table(
        "event",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("causation", sa.String(), nullable=True),
        sa.Column("correlation", sa.String(), nullable=True),
        sa.Column("traceparent", sa.String(), nullable=True),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(
        "event_causation",
        "event",
        ["causation"],
        sqlite_where=sa.text("causation IS NOT NULL"),
        postgresql_where=sa.text("causation IS NOT NULL"),
    )
    op.create_index("event_key", "event", ["key", "sequence"])
    op.create_index("ix_event_type", "event", ["type"])


def _create_lease() -> None:
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _create_podium() -> None:
    op.create_table(
        "podium",
        sa.Column("one", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("database_id", sa.String(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("relayed_sequence", sa.BigInteger(), nullable=False),
        sa.Column("relayed_id", sa.String(), nullable=True),
        sa.Column("store_id", sa.String(), nullable=True),
        sa.Column("store_url", sa.String(), nullable=True),
        sa.CheckConstraint("one = 1", name="podium_one_row"),
        sa.PrimaryKeyConstraint("one"),
    )


def _create_protection() -> None:
    op.create_table(
        "protection",
        sa.Column("artifact", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("artifact", "alias"),
    )


def _create_replica() -> None:
    op.create_table(
        "replica",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("index_no", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("deployment", "index_no"),
    )


def _create_rollout() -> None:
    op.create_table(
        "rollout",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("order_no", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("served", sa.String(), nullable=False),
        sa.Column("artifact", sa.String(), nullable=False),
        sa.Column("alias", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("past", sa.Integer(), nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.CheckConstraint(
            "state IN ('started', 'flipped', 'live', 'failed', 'superseded')", name="rollout_state"
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("deployment", "order_no"),
    )
    op.create_index("ix_rollout_digest", "rollout", ["digest"])
    op.create_index(
        "rollout_open",
        "rollout",
        ["deployment", "served"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index("rollout_promotion", "rollout", ["artifact", "alias", "generation"])
    op.create_index(
        "rollout_target",
        "rollout",
        ["deployment", "revision", "served", "artifact", "alias", "generation", "version"],
        unique=True,
        sqlite_where=sa.text("past = 0"),
        postgresql_where=sa.text("past = 0"),
    )


def _create_route_table() -> None:
    op.create_table(
        "route_table",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("engine", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.PrimaryKeyConstraint("deployment"),
    )


def _create_token() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("pattern", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=True),
        sa.Column("revoked_at", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("token_run", "token", ["run", "epoch"])


def _create_worker() -> None:
    op.create_table(
        "worker",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("capacity", sa.Text(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("seen_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_worker_pool", "worker", ["pool"])


def _create_content_chunk() -> None:
    op.create_table(
        "content_chunk",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("chunk", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["chunk"],
            ["chunk.key"],
        ),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["content.digest"],
        ),
        sa.PrimaryKeyConstraint("digest", "chunk"),
    )
    op.create_index("ix_content_chunk_chunk", "content_chunk", ["chunk"])


def _create_delivery() -> None:
    op.create_table(
        "delivery",
        sa.Column("position", _KEY, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("consumer", sa.String(), nullable=False),
        sa.Column("subscription", sa.String(), nullable=False),
        sa.Column("event_sequence", _KEY, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("replay", sa.Integer(), nullable=False),
        sa.Column("access", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("due_at", _MOMENT, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("changed_at", _MOMENT, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("waits_for", sa.String(), nullable=True),
        sa.CheckConstraint("(state = 'held') = (waits_for IS NOT NULL)", name="delivery_waits"),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'held', 'done', 'dead', 'superseded', 'stopped')",
            name="delivery_state",
        ),
        sa.ForeignKeyConstraint(["event_sequence"], ["event.sequence"], ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("position"),
        sa.UniqueConstraint("consumer", "subscription", "event_sequence", "replay"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(
        "delivery_due",
        "delivery",
        ["consumer", "due_at"],
        sqlite_where=sa.text("state IN ('held', 'pending', 'running')"),
        postgresql_where=sa.text("state IN ('held', 'pending', 'running')"),
    )
    op.create_index("delivery_state_position", "delivery", ["state", "position"])
    op.create_index(
        "delivery_turn",
        "delivery",
        ["consumer", "subscription", "key", "position"],
        sqlite_where=sa.text("state IN ('held', 'pending', 'running')"),
        postgresql_where=sa.text("state IN ('held', 'pending', 'running')"),
    )
    op.create_index("ix_delivery_event_sequence", "delivery", ["event_sequence"])


def _create_route() -> None:
    op.create_table(
        "route",
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("served", sa.String(), nullable=False),
        sa.Column("ref", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("previous_ref", sa.String(), nullable=True),
        sa.Column("previous_digest", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["deployment"],
            ["route_table.deployment"],
        ),
        sa.PrimaryKeyConstraint("deployment", "served"),
    )
    op.create_index("ix_route_digest", "route", ["digest"])
    op.create_index("ix_route_previous_digest", "route", ["previous_digest"])


def _create_subscription() -> None:
    op.create_table(
        "subscription",
        sa.Column("consumer", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["consumer"],
            ["consumer.name"],
        ),
        sa.PrimaryKeyConstraint("consumer", "name"),
    )


def _create_value() -> None:
    op.create_table(
        "value",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("metadata_json", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["content.digest"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_value_digest", "value", ["digest"])
    op.create_index("ix_value_run", "value", ["run"])


def _create_edge() -> None:
    op.create_table(
        "edge",
        sa.Column("child", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["child"],
            ["value.id"],
        ),
        sa.ForeignKeyConstraint(
            ["parent"],
            ["value.id"],
        ),
        sa.PrimaryKeyConstraint("child", "parent", "role"),
    )
    op.create_index("ix_edge_parent", "edge", ["parent"])


def _create_evaluation() -> None:
    op.create_table(
        "evaluation",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("report", sa.String(), nullable=False),
        sa.Column("subject_digest", sa.String(), nullable=False),
        sa.Column("dataset_digest", sa.String(), nullable=False),
        sa.Column("evaluator", sa.String(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["report"],
            ["value.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("report"),
    )
    op.create_index("evaluation_subject", "evaluation", ["subject_digest", "dataset_digest"])


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("code", sa.String(), nullable=True),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("publish", sa.String(), nullable=True),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("app", sa.String(), nullable=True),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("root", sa.String(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("turn", _MOMENT, nullable=False),
        sa.Column("place", sa.Text(), nullable=True),
        sa.Column("signature", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("cache_key", sa.String(), nullable=True),
        sa.Column("waits_for", sa.String(), nullable=True),
        sa.Column("again", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("counted_from", sa.Integer(), server_default="0", nullable=False),
        sa.Column("asked", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("causation", sa.String(), nullable=True),
        sa.Column("correlation", sa.String(), nullable=True),
        sa.Column("captured", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("conditions", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("queued_at", _MOMENT, nullable=False),
        sa.Column("not_before", _MOMENT, nullable=True),
        sa.Column("started_at", _MOMENT, nullable=True),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.CheckConstraint("(state IN ('queued', 'running')) = (ended_at IS NULL)", name="run_ended"),
        sa.CheckConstraint("state <> 'running' OR started_at IS NOT NULL", name="run_started"),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'interrupted', 'cancelled')",
            name="run_state",
        ),
        sa.CheckConstraint("depth >= 0 AND counted_from >= 0", name="run_counts"),
        sa.ForeignKeyConstraint(
            ["code"],
            ["value.id"],
        ),
        sa.ForeignKeyConstraint(
            ["parent"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["source"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["waits_for"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("ix_run_parent", "run", ["parent"])
    op.create_index("ix_run_root", "run", ["root"])
    op.create_index("run_cached", "run", ["cache_key", "state"])
    op.create_index(
        "run_expires",
        "run",
        ["expires_at"],
        sqlite_where=sa.text("expires_at IS NOT NULL AND state = 'queued'"),
        postgresql_where=sa.text("expires_at IS NOT NULL AND state = 'queued'"),
    )
    op.create_index(
        "run_flight",
        "run",
        ["cache_key"],
        unique=True,
        sqlite_where=sa.text(
            "cache_key IS NOT NULL AND waits_for IS NULL AND state IN ('queued', 'running')"
        ),
        postgresql_where=sa.text(
            "cache_key IS NOT NULL AND waits_for IS NULL AND state IN ('queued', 'running')"
        ),
    )
    op.create_index("run_newest", "run", ["queued_at", "id"])
    op.create_index("run_place", "run", ["parent", "place"], unique=True)
    op.create_index("run_turns", "run", ["state", "pool", "turn", "queued_at", "id"])


def _create_version() -> None:
    op.create_table(
        "version",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("artifact_id", _KEY, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("deleted_at", _MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifact.id"], ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["value"],
            ["value.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("artifact_id", "number"),
    )
    op.create_index("ix_version_digest", "version", ["digest"])
    op.create_index("ix_version_value", "version", ["value"])
    op.create_index(
        "version_content",
        "version",
        ["artifact_id", "digest"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )


def _create_alias() -> None:
    op.create_table(
        "alias",
        sa.Column("artifact_id", _KEY, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version_id", _KEY, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("moved_at", _MOMENT, nullable=False),
        sa.Column("held_by", sa.String(), nullable=True),
        sa.Column("held_at", _MOMENT, nullable=True),
        sa.Column("hold_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["artifact_id"],
            ["artifact.id"],
        ),
        sa.ForeignKeyConstraint(["version_id"], ["version.id"], ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("artifact_id", "name"),
    )
    op.create_index("ix_alias_version_id", "alias", ["version_id"])


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("cause", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("environment", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('succeeded', 'failed', 'interrupted', 'cancelled')",
            name="attempt_outcome",
        ),
        sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="attempt_ended"),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run", "number"),
    )


def _create_checkpoint() -> None:
    op.create_table(
        "checkpoint",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("bytes_sent", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'whole'"), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("('')"), nullable=False),
        sa.Column("metadata_json", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("saved_at", _MOMENT, nullable=False),
        sa.CheckConstraint("state IN ('whole', 'damaged')", name="checkpoint_state"),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["content.digest"],
        ),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run", "series", "number"),
    )
    op.create_index("ix_checkpoint_digest", "checkpoint", ["digest"])


def _create_example_score() -> None:
    op.create_table(
        "example_score",
        sa.Column("evaluation_id", _KEY, nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("scores", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluation.id"],
        ),
        sa.PrimaryKeyConstraint("evaluation_id", "metric", "subject"),
    )


def _create_promotion() -> None:
    op.create_table(
        "promotion",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("artifact_id", _KEY, nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("from_version_id", _KEY, nullable=True),
        sa.Column("to_version_id", _KEY, nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("verdicts", sa.Text(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.CheckConstraint("action IN ('promote', 'rollback', 'revert')", name="promotion_action"),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifact.id"], ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["from_version_id"], ["version.id"], ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["to_version_id"], ["version.id"], ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("artifact_id", "alias", "generation"),
    )
    op.create_index("ix_promotion_from_version_id", "promotion", ["from_version_id"])
    op.create_index("ix_promotion_to_version_id", "promotion", ["to_version_id"])


def _create_run_input() -> None:
    op.create_table(
        "run_input",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("parameter", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("ref", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["value"],
            ["value.id"],
        ),
        sa.PrimaryKeyConstraint("run", "parameter"),
    )
    op.create_index("ix_run_input_value", "run_input", ["value"])


def _create_run_log() -> None:
    op.create_table(
        "run_log",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run", "sequence"),
    )


def _create_run_measure() -> None:
    op.create_table(
        "run_measure",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("measures", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run", "sequence"),
    )


def _create_run_output() -> None:
    op.create_table(
        "run_output",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("ref", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["value"],
            ["value.id"],
        ),
        sa.PrimaryKeyConstraint("run", "name"),
    )
    op.create_index("ix_run_output_value", "run_output", ["value"])


def _create_score() -> None:
    op.create_table(
        "score",
        sa.Column("evaluation_id", _KEY, nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("base", sa.Float(), nullable=True),
        sa.Column("higher_is_better", sa.Boolean(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluation.id"],
        ),
        sa.PrimaryKeyConstraint("evaluation_id", "metric"),
    )


def _create_tag() -> None:
    op.create_table(
        "tag",
        sa.Column("version_id", _KEY, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["version.id"],
        ),
        sa.PrimaryKeyConstraint("version_id", "key"),
    )
