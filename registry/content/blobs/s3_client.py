"""The boto3 client of a store."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

_CONNECTIONS = 32


def connect() -> Any:
    """A client with endpoint, region and credentials from where boto3 takes them; nothing is asked yet."""
    # A session of our own: boto3's default one keeps the first credentials it saw, and is not thread-safe.
    session = boto3.session.Session()
    client = session.client("s3", config=_config("auto"))
    if _is_amazon(client.meta.endpoint_url):
        return client
    # Other servers rarely have a DNS name for each bucket.
    client.close()
    return session.client("s3", config=_config("path"))


def _is_amazon(endpoint: str) -> bool:
    return (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _config(addressing: str) -> Any:
    return Config(
        connect_timeout=10,
        read_timeout=60,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 5},
        # Each PUT carries the chunk's sha256, and what is read is compared with it: further digests of the
        # same bytes (for the signature, crc32) would only cost time.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": addressing, "payload_signing_enabled": False},
    )
