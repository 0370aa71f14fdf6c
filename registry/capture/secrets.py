"""Secrets: which names and values are, and text without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

# Every repetition below has a bound, or cannot begin again inside itself: a minified file on one line would
# take minutes otherwise. Of a name that is longer than its bound, the end is looked at.

#: What stands where a secret was.
REMOVED = "[removed]"

#: Values that are secrets wherever they stand: the issuer made them recognisable.
_KNOWN_VALUES = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*\Z)",
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{16,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "a Google key": r"\bAIza[A-Za-z0-9_-]{30,}",
    "a podium key or token": r"\bpodium[-_][0-9a-f]{8,16}[-_][A-Za-z0-9_-]{40,}",
    "a PyPI token": r"\bpypi-[A-Za-z0-9_-]{32,}",
    "an npm token": r"\bnpm_[A-Za-z0-9]{30,}",
    "a signed web token": r"\beyJ[A-Za-z0-9_-]{8,1000}\.eyJ[A-Za-z0-9_-]{8,9000}\.[A-Za-z0-9_-]*",
}
KNOWN_VALUES = {what: re.compile(pattern, re.DOTALL) for what, pattern in _KNOWN_VALUES.items()}

#: The user's part of a URL: a password, or a token in the place of the name.
_URL_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}+://)[^\s/@\"'<>]+@", re.IGNORECASE)
#: Parameters that presigned addresses and APIs carry.
_SIGNED_QUERY = re.compile(
    r"(?P<name>[?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|sig|signature|token|access_token|api_?key|key|password)=)[^&\s\"'<>]+",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[A-Za-z0-9+/._~=-]{8,}", re.IGNORECASE)

_WORD = (
    r"password|passwd|passphrase|pwd|secret|credentials?|auth|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|(?:access|auth|refresh|session|id)?[_-]?token"
)
#: Whole names. `hub_token` and `DB_PASSWORD` hold secrets; `max_new_tokens`, `tokenizer` and `pad_token` do
#: not.
_SECRET_NAME = re.compile(
    rf"(?!(?:.*_)?(?:bos|cls|eos|image|mask|pad|sep|unk)_token)"
    rf"(?:(?:.*[_.\-])?(?:{_WORD})(?:[_.\-](?:id|value|key|b64|string|\d+))?|.*(?:password|secret)s?)",
    re.IGNORECASE,
)
_NAME = r"(?P<key>[A-Za-z_][A-Za-z0-9_.\-]{0,80}+)"
_VALUE = r"""(?P<value>\[removed\]|"[^"\n]*"|'[^'\n]*'|[^\s,;)}\]]+)"""
#: ``name = value``, ``"name": "value"``, ``name: type = value``, in text of any sort.
_SIGN = r"(?::\s{0,9}[\w.\[\] |]{1,60}?\s{0,9}=|==?|:=?)"
_ASSIGNMENT = re.compile(rf"""(?P<name>{_NAME}["']?\s{{0,30}}+{_SIGN}\s*+){_VALUE}""")
#: ``--name value`` on a command line.
_OPTION = re.compile(rf"(?P<name>--{_NAME}[ =]++){_VALUE}")
#: Code that fetches a secret is none: a call, a lookup, a placeholder, a type.
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[(\[].*|(?:self|os|args|settings|config|cfg|env)\.[\w.]+|\$.*|None|True|False|null|str|int"
)

#: Files that hold secrets by their name, wherever they lie. Case does not matter.
SECRET_FILES = (
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".pgpass",
    ".htpasswd",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "credentials",
    "credentials.*",
    "secrets.*",
    "service-account*.json",
    "service_account*.json",
    "kubeconfig",
    "nats.json",
)
_SECRET_FOLDERS = {".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker"}


#: Values that this process was given as secrets.
_hidden: set[str] = set()
_SHORTEST = 6


def hide(values: Iterable[str]) -> None:
    """Have `scrub` remove these values from now on, whatever they look like."""
    _hidden.update(value for value in values if value)


def holds_hidden(data: bytes) -> bool:
    """Whether bytes have a value in them that this process was given as a secret.

    Values of fewer than 6 characters are in too much to tell anything.
    """
    return any(value.encode() in data for value in _hidden if len(value) >= _SHORTEST)


def is_secret_name(name: str) -> bool:
    """Whether something of this name holds a secret: a parameter, a variable, a key of a mapping."""
    return _SECRET_NAME.fullmatch(name) is not None


def is_secret_file(path: str) -> bool:
    """Whether a file of this relative path is known to hold secrets."""
    parts = PurePath(path.lower()).parts
    return any(part in _SECRET_FOLDERS for part in parts[:-1]) or any(
        fnmatchcase(parts[-1], pattern) for pattern in SECRET_FILES
    )


def find_secret(text: str) -> tuple[int, str] | None:
    """Line (from 1) and sort of the first value that is a secret beyond doubt, if there is one."""
    found = [
        (match.start(), what) for what, pattern in KNOWN_VALUES.items() if (match := pattern.search(text))
    ]
    if not found:
        return None
    start, what = min(found)
    return text.count("\n", 0, start) + 1, what


def scrub(text: str) -> str:
    """The text with ``[removed]`` in the place of tokens, keys, passwords and the login of URLs.

    It removes rather too much: what is recorded is for people to read, not for programs to use.
    """
    for value in _hidden:
        text = text.replace(value, REMOVED)
    for pattern in KNOWN_VALUES.values():
        text = pattern.sub(REMOVED, text)
    text = _URL_LOGIN.sub(rf"\g<scheme>{REMOVED}@", text)
    text = _SIGNED_QUERY.sub(rf"\g<name>{REMOVED}", text)
    text = _AUTHORIZATION.sub(rf"\g<name>{REMOVED}", text)
    return _ASSIGNMENT.sub(_without_value, _OPTION.sub(_without_value, text))


def _without_value(match: re.Match[str]) -> str:
    if not is_secret_name(match["key"]) or _CODE.fullmatch(match["value"]):
        return match[0]
    return match["name"] + REMOVED


def scrub_values(value: Any) -> Any:
    """Plain JSON without secrets: texts are scrubbed, and what a secret's name points to is removed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {
            key: REMOVED if is_secret_name(str(key)) and content is not None else scrub_values(content)
            for key, content in value.items()
        }
    if isinstance(value, list | tuple):
        return [scrub_values(each) for each in value]
    return value
