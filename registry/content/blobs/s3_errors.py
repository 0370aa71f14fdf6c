"""What S3 and the way to it can say, in podium's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from urllib3.exceptions import HTTPError

from registry.errors import ContentDamaged, PodiumError, StoreFull, StoreUnavailable

_DENIED = {
    "AccessDenied",
    "403",  # a HEAD has no body that could say more
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "SignatureDoesNotMatch",
}
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
_FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}
_TAKEN = {"412", "PreconditionFailed", "ConditionalRequestConflict"}
# What breaks while a body is read; before that boto3 tries again by itself.
_BREAKS = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError, HTTPError, ConnectionError)
_REACH = "Check AWS_ENDPOINT_URL, and that the server runs and can be reached from here."


class KeyMissing(Exception):
    """There is no object of that name (the caller knows what that means)."""


class KeyTaken(Exception):
    """There is an object of that name, and the request was to make it only if not."""


def is_broken_stream(error: BaseException) -> bool:
    """Whether `translated` raised ``error`` because a body ended before its time."""
    return isinstance(error, StoreUnavailable) and isinstance(error.__cause__, _BREAKS)


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise what happens inside as podium's errors about the store at ``url``."""
    try:
        yield
    except PodiumError:
        raise
    except ClientError as error:
        raise _of_answer(url, error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise _denied(url, str(error)) from error
    except _BREAKS as error:
        raise StoreUnavailable(
            f"The connection to the store {url} broke: {error}", remedy="Try again: what was sent is kept."
        ) from error
    except (BotoCoreError, OSError) as error:
        raise StoreUnavailable(f"The store {url} cannot be reached: {error}", remedy=_REACH) from error


def _of_answer(url: str, error: ClientError) -> Exception:
    code = str(error.response.get("Error", {}).get("Code", ""))
    said = error.response.get("Error", {}).get("Message", "") or code
    if code in ("NoSuchKey", "404", "NotFound"):
        return KeyMissing()
    if code in _TAKEN:
        return KeyTaken()
    if code in ("NoSuchBucket", "InvalidBucketName", "PermanentRedirect"):
        return StoreUnavailable(
            f"The store {url} has no such bucket here: {said}",
            remedy="Check the bucket of PODIUM_BLOBS, AWS_ENDPOINT_URL and AWS_DEFAULT_REGION.",
        )
    if code in _DENIED:
        return _denied(url, said)
    if code in _FULL or "no space left" in said.lower():
        return StoreFull(
            f"The store {url} has no room left: {said}", remedy="Make room; what was sent is kept."
        )
    if code in _DAMAGED:
        return ContentDamaged(f"Bytes changed on their way to the store {url}: {said}", remedy="Push again.")
    return StoreUnavailable(
        f"The store {url} answered with {code}: {said}", remedy="Try again; see the server's log."
    )


def _denied(url: str, said: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The store {url} refuses the credentials: {said}",
        remedy="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to a key for that bucket.",
    )
