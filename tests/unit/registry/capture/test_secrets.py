"""What counts as a secret, and what is left of text that has one."""

from __future__ import annotations

import json
import string
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.capture.secrets import REMOVED, find_secret, is_secret_file, is_secret_name, scrub, scrub_values

# Written in two parts, so that this file has no secret in it.
HF = "hf" + "_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"
GITHUB = "ghp" + "_0123456789abcdefghijABCDEFGHIJ012345"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
OPENAI = "sk-" + "proj-abcdefghijklmnopqrstuvwxyz0123456789"
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nq83vEjR\n-----END RSA PRIVATE KEY-----"
PODIUM = "podium" + "-0a1b2c3d-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9v-_yABCD"
SECRETS = [HF, GITHUB, AWS, OPENAI, JWT, PODIUM, PODIUM.replace("-", "_", 2)]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "text", ["{}", "token {} here", "x=({})", "+    call('{}')", "https://host/?q={}&n=1"]
)
def test_a_recognisable_token_never_stays(text: str, secret: str) -> None:
    assert secret not in scrub(text.format(secret))


def test_a_private_key_goes_with_all_its_lines() -> None:
    assert scrub(f"before\n{PEM}\nafter") == f"before\n{REMOVED}\nafter"


def test_a_private_key_that_is_cut_short_goes_too() -> None:
    assert "MIIE" not in scrub(PEM[:60])


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ada:s3cr3t@db.example/podium",
        "https://s3cr3t@github.com/org/repo.git",
        "nats://u:s3cr3t@127.0.0.1:4222",
        "https://bucket.example/x?X-Amz-Signature=s3cr3t&a=1",
        "https://api.example/v1?api_key=s3cr3t",
        "Authorization: Bearer s3cr3ts3cr3t",
        "HF_TOKEN=s3cr3t",
        "export DB_PASSWORD='s3cr3t'",
        'password: str = "s3cr3t"',
        '{"hub_token": "s3cr3t"}',
        "{'client_secret': 's3cr3t'}",
        "--hub-token s3cr3t --lr 1e-4",
        "--api-key=s3cr3t",
        "+AWS_SECRET_ACCESS_KEY: s3cr3t",
        "dbPassword = s3cr3t",
        "secret_key := 's3cr3t'",
    ],
)
def test_what_a_secret_name_points_to_is_removed(text: str) -> None:
    scrubbed = scrub(text)
    assert "s3cr3t" not in scrubbed
    assert REMOVED in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "max_new_tokens=64",
        "tokenizer = AutoTokenizer.from_pretrained(base)",
        'pad_token = "<|im_end|>"',
        "tokens: list[int]",
        'token = os.environ["HF_TOKEN"]',
        "password = getpass.getpass()",
        "password: str",
        "api_key=settings.api_key",
        "token=None",
        "https://github.com/org/repo.git",
        "git@github.com:org/repo.git",
        "lr=0.0002 rank=16 seed=7",
        "author = 'Ada'",
        "monkey: value",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert scrub(text) == text


def test_arguments_lose_secrets_by_name_and_by_value() -> None:
    given = {
        "lr": 1e-4,
        "hub_token": "abc",
        "nested": [{"password": 1234}, f"see {HF}"],
        "tokens": 3,
        "token": None,
    }
    kept = {
        "lr": 1e-4,
        "hub_token": REMOVED,
        "nested": [{"password": REMOVED}, f"see {REMOVED}"],
        "tokens": 3,
    }
    assert scrub_values(given) == {**kept, "token": None}


@pytest.mark.parametrize(
    "name", ["token", "hub_token", "HF_TOKEN", "apiKey", "AWS_ACCESS_KEY_ID", "pwd", "db-password"]
)
def test_names_that_hold_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["tokenizer", "max_tokens", "eos_token", "pad_token_id", "key", "author", "monkey", "lr"]
)
def test_names_that_hold_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "path", [".env", "conf/.ENV.local", "id_rsa", "a/server.PEM", "x/.aws/config", "secrets.yaml"]
)
def test_files_that_hold_secrets(path: str) -> None:
    assert is_secret_file(path)


@pytest.mark.parametrize(
    "path", ["train.py", "environment.py", "keys.py", "docs/secrets-guide.md", "env/run.py"]
)
def test_files_that_hold_none(path: str) -> None:
    assert not is_secret_file(path)


def test_the_first_secret_of_a_file_is_found_with_its_line() -> None:
    assert find_secret(f"one\ntwo {GITHUB}\n{HF}") == (2, "a GitHub token")
    assert find_secret("nothing here") is None


@given(
    st.sampled_from(SECRETS),
    st.text(string.printable, max_size=60),
    st.text(string.printable, max_size=60),
)
def test_a_token_never_stays_whatever_stands_around_it(secret: str, before: str, after: str) -> None:
    assert secret not in scrub(f"{before} {secret} {after}")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_scrubbed_values_can_still_be_written_as_json(value: object) -> None:
    json.dumps(scrub_values(value))


def test_scrubbing_twice_changes_nothing_more() -> None:
    text = "HF_TOKEN=abc https://a:b@c.example/ --api-key xyz"
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize(
    "repeated",
    [
        "x",
        "x.",
        "x=",
        "--x",
        "eyJ",
        "eyJ-",
        "a://",
        "a:",
        "password_",
        "_token",
        "?sig=",
        "bearer ",
        " ",
        "\n",
    ],
)
def test_long_lines_of_any_sort_are_read_in_a_moment(repeated: str) -> None:
    text = repeated * (50_000 // len(repeated))
    began = process_time()
    for each in (text, f"a:{text}", f'"a" {text}', f"a: {text}="):
        scrub(each)
    assert process_time() - began < 5, "a minified file in a diff would hang the command"


@pytest.mark.parametrize("before", ["x" * 500, "x-" * 500, "a: " * 500, "y.z." * 500])
def test_a_secret_after_a_long_line_is_found(before: str) -> None:
    assert "s3cr3t" not in scrub(f"{before}_password=s3cr3t")
