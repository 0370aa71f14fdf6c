"""The boto3 client of a store."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

_CONNECTIONS = 32


def connect(*, signing: bool = False) -> Any:
    """A client with endpoint, region and credentials from where boto3 takes them; nothing is asked yet.

    One that is ``signing`` makes addresses for others to use, whose signatures bind headers.
    """
    # A session of our own: boto3's default one keeps the first credentials it saw, and is not thread-safe.
    session = boto3.session.Session()
    client = session.client("s3", config=_config("auto", signing))
    if _is_amazon(client.meta.endpoint_url):
        return client
    # Other servers rarely have a DNS name for each bucket.
    client.close()
    return session.client("s3", config=_config("path", signing))


def _is_amazon(endpoint: str) -> bool:
    return (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _config(addressing: str, signing: bool) -> Any:
    return Config(
        # The older signature, which boto3 takes for addresses, binds no headers.
        signature_version="s3v4" if signing else None,
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
