from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stado.errors import Misconfigured
from stado.storage.open import Scheme, StoreAddress, open_store, parse_address
from stado.storage.retry import RetryingStore
from tests.storage.stores import CLOCK, ENTROPY, TASKS


def _open(address: str, *, create: bool = False, endpoint: str | None = None) -> RetryingStore:
    return open_store(
        address,
        endpoint=endpoint,
        region="us-east-1",
        clock=CLOCK,
        entropy=ENTROPY,
        tasks=TASKS,
        create=create,
    )


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("/srv/queue", StoreAddress(Scheme.FILE, path=Path("/srv/queue"))),
        ("queue", StoreAddress(Scheme.FILE, path=Path("queue"))),
        ("file:///srv/my%20queue", StoreAddress(Scheme.FILE, path=Path("/srv/my queue"))),
        ("s3://bucket", StoreAddress(Scheme.S3, bucket="bucket")),
        ("s3://bucket/team/a/", StoreAddress(Scheme.S3, bucket="bucket", prefix="team/a")),
        ("gs://my.bucket/x", StoreAddress(Scheme.GCS, bucket="my.bucket", prefix="x")),
        ("S3://bucket", StoreAddress(Scheme.S3, bucket="bucket")),
    ],
)
def test_address_is_taken_apart(address: str, parsed: StoreAddress) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "s3://bucket/prefix"),
        ("azure://box", "azure"),
        ("s3://", "no bucket name"),
        ("s3:///x", "no bucket name"),
        ("s3://x/y", "the bucket's name has 3 to "),
        ("gs://-box/y", "begins with a letter or digit: this one does not"),
        ("s3://bucket/a//b", "cannot be part of a key"),
        ("file://host/path", "file:///path"),
    ],
)
def test_wrong_address_is_refused_with_what_is_possible(address: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        parse_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIAKEY:hunter2@host/bucket",
        "https://AKIAKEY:hunter2@host/bucket",
        "s3:AKIAKEY:hunter2@host/bucket",
        "file://AKIAKEY:hunter2@host/bucket",
    ],
)
def test_secret_in_an_address_is_not_repeated(address: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        parse_address(address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("endpoint", ["http://key:hunter2@host:9000", "https://key:hunter2@host/a"])
def test_an_endpoint_with_a_secret_is_refused_and_not_repeated(endpoint: str) -> None:
    """It would stand in each message that names the server."""
    with pytest.raises(Misconfigured, match="no user or password in it") as refused:
        _open("s3://bucket", endpoint=endpoint)
    assert "hunter2" not in str(refused.value)


def test_a_home_that_nothing_tells_is_no_mistake_of_ours() -> None:
    assert parse_address("~nobody-of-that-name/q").path == Path("~nobody-of-that-name/q")


def test_missing_directory_is_refused_and_made_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store"
    with pytest.raises(Misconfigured, match=r"there is no store at .* run `stado init`"):
        _open(str(path))
    assert not path.exists()
    _open(str(path), create=True).create("stado.json", b"{}")
    assert _open(f"file://{path}").get("stado.json").data == b"{}"


def test_bucket_is_opened_without_a_request() -> None:
    """Nothing listens there."""
    assert _open("s3://bucket/team", endpoint="http://127.0.0.1:9").address == "s3://bucket/team"
    assert _open("gs://bucket", endpoint="http://127.0.0.1:9").address == "gs://bucket"


def test_endpoint_must_be_a_url() -> None:
    with pytest.raises(Misconfigured, match="https://host"):
        _open("s3://bucket", endpoint="localhost:9000")


def test_missing_sdk_is_named_with_the_command_that_installs_it() -> None:
    """In a process where only the standard library and the package itself can be found."""
    code = """
import importlib.util, sys
real = importlib.util.find_spec
sys.modules["boto3"] = None
import stado.storage.open as opening
opening.find_spec = lambda name: None if name == "boto3" else real(name)
try:
    opening.open_store("s3://b-1", endpoint=None, region=None, clock=None, entropy=None, tasks=None)
except opening.Misconfigured as error:
    print(error)
print("google.cloud.storage" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "s3://: this needs boto3, which is not installed: pip install 'stado[s3]'",
        "False",
    ]
