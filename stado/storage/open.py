"""From what a user types to a store: the address, its adapter, and the retries around it.

Adapters are imported when an address asks for them, so that a directory needs no SDK.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from stado.errors import Misconfigured
from stado.ports import Clock, Entropy, Tasks
from stado.storage.bucket_rules import BucketRules
from stado.storage.file import FileStore
from stado.storage.keys import check_key
from stado.storage.meter import RequestMeter
from stado.storage.port import Store
from stado.storage.retry import RetryingStore
from stado.storage.trouble import StoreTrouble

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HALF_SCHEME = re.compile(r"(s3|gs|file):(?!//)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
_ENDPOINT = re.compile(r"https?://(?P<server>[^/\s?#]+)")
POSSIBLE = "a directory (/path or file:///path), s3://bucket/prefix or gs://bucket/prefix"

_FIRST_KEYS = 100


class Scheme(StrEnum):
    """The kinds of store."""

    FILE = "file"
    S3 = "s3"
    GCS = "gs"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """What was typed, taken apart. A directory has a path; a bucket a name and a prefix."""

    scheme: Scheme
    path: Path = Path()
    bucket: str = ""
    prefix: str = ""
    """Without `/` at either end; "" is the whole bucket."""


@dataclass(frozen=True, slots=True)
class _Sdk:
    """What an adapter needs, and where it comes from."""

    module: str
    package: str
    extra: str


_SDKS = {
    Scheme.S3: _Sdk("boto3", "boto3", "s3"),
    Scheme.GCS: _Sdk("google.cloud.storage", "google-cloud-storage", "gcs"),
}


def parse_address(address: str) -> StoreAddress:
    """Raises `Misconfigured`, naming what is possible."""
    if not address:
        raise Misconfigured("", f"no store is given: it is {POSSIBLE}")
    found = _SCHEME.match(address)
    if found is None and _HALF_SCHEME.match(address):
        raise Misconfigured(
            _without_secret(address), f"that is no address: did you mean {_mended(address)}?"
        )
    if found is None:
        return StoreAddress(Scheme.FILE, path=Path(os.path.expanduser(address)))
    name = found[1].lower()
    if name not in set(Scheme):
        raise Misconfigured(
            _without_secret(address), f"stores of kind {name}:// are unknown: use {POSSIBLE}"
        )
    if name == Scheme.FILE:
        return StoreAddress(Scheme.FILE, path=_file_path(address))
    return _bucket_address(Scheme(name), address[found.end() :])


def _mended(address: str) -> str:
    scheme, _, rest = _without_secret(address).partition(":")
    return f"{scheme}://{rest.lstrip('/')}"


def _without_secret(address: str) -> str:
    """What stands before an @ may be one."""
    _, secret, rest = address.rpartition("@")
    return f"{address.partition(':')[0]}:…@{rest}" if secret else address


def open_store(  # noqa: PLR0913 - the composition root's one call: ports and options by name
    address: str,
    *,
    endpoint: str | None,
    region: str | None,
    clock: Clock,
    entropy: Entropy,
    tasks: Tasks,
    create: bool = False,
    conditional_delete: bool = True,
    trouble: StoreTrouble | None = None,
    meter: RequestMeter | None = None,
) -> RetryingStore:
    """Sends nothing to a bucket yet; a directory must exist, or is made with `create`.

    `endpoint` is the URL of a server other than AWS or Google; `conditional_delete` is what the
    store was proved to honour; `trouble` hears of what is repeated, `meter` of what is sent to a
    bucket. Raises
    `Misconfigured`, and `Denied` for a directory."""
    parsed = parse_address(address)
    if parsed.scheme is Scheme.FILE:
        store = _open_directory(parsed.path, clock, entropy, create=create)
        return RetryingStore(store, clock=clock, entropy=entropy, tasks=tasks, trouble=trouble)
    check_endpoint(endpoint)
    _check_installed(parsed.scheme)
    bucket = _BucketOptions(endpoint, region, conditional_delete, meter)
    if parsed.scheme is Scheme.S3:
        inner, at_a_time = _open_s3(parsed, bucket, clock, tasks)
    else:
        inner, at_a_time = _open_gcs(parsed, bucket, clock, tasks)
    return RetryingStore(
        inner,
        clock=clock,
        entropy=entropy,
        tasks=tasks,
        concurrent_creates=at_a_time,
        trouble=trouble,
    )


def are_of_one_kind(address: str, other: str) -> bool:
    """Raises `Misconfigured`."""
    return parse_address(address).scheme is parse_address(other).scheme


def check_takes_copies(address: str, *, own: str) -> None:
    """Raises `Misconfigured` for what lies within our own store, and a folder that is not there."""
    theirs = parse_address(address)
    if _is_within(theirs, parse_address(own)):
        raise Misconfigured(
            address,
            "that is in the deployment's own store, whose keys mean something: use stado://",
        )
    if theirs.scheme is Scheme.FILE and not theirs.path.is_dir():
        raise Misconfigured(address, "there is no such folder on the host")


def _is_within(address: StoreAddress, other: StoreAddress) -> bool:
    if address.scheme is not other.scheme:
        return False
    if address.scheme is Scheme.FILE:
        return address.path.resolve().is_relative_to(other.path.resolve())
    within = f"{address.prefix}/".startswith(f"{other.prefix}/" if other.prefix else "")
    return address.bucket == other.bucket and within


def first_names(
    address: str, *, endpoint: str | None, region: str | None, clock: Clock, tasks: Tasks
) -> list[str]:
    """What is at an address, whoever put it there: names, those of folders with `/` at their end.

    All of a directory; of a bucket those that one request tells. Empty when nothing is there.
    Makes nothing. Raises what `open_store` does, and what keeps a bucket from answering."""
    parsed = parse_address(address)
    if parsed.scheme is Scheme.FILE:
        return FileStore.names_in(parsed.path)
    check_endpoint(endpoint)
    _check_installed(parsed.scheme)
    options = _BucketOptions(endpoint, region, conditional_delete=False)
    open_bucket = _open_s3 if parsed.scheme is Scheme.S3 else _open_gcs
    store, _ = open_bucket(parsed, options, clock, tasks)
    try:
        keys = store.first_keys(_FIRST_KEYS)
    finally:
        store.close()
    names = [name + slash for name, slash, _ in (key.partition("/") for key in keys)]
    return list(dict.fromkeys(name for name in names if name))


def bucket_rules(
    address: str, *, endpoint: str | None, region: str | None, clock: Clock, tasks: Tasks
) -> BucketRules | None:
    """What a bucket does by itself to the objects in it; None of a directory. Two requests at most,
    without retries: what is not told says why. Raises what `open_store` does."""
    parsed = parse_address(address)
    if parsed.scheme is Scheme.FILE:
        return None
    check_endpoint(endpoint)
    _check_installed(parsed.scheme)
    options = _BucketOptions(endpoint, region, conditional_delete=False)
    open_bucket = _open_s3 if parsed.scheme is Scheme.S3 else _open_gcs
    store, _ = open_bucket(parsed, options, clock, tasks)
    try:
        return store.rules()
    finally:
        store.close()


class _Bucket(Store, Protocol):
    def first_keys(self, limit: int) -> list[str]: ...

    def rules(self) -> BucketRules: ...


@dataclass(frozen=True, slots=True)
class _BucketOptions:
    endpoint: str | None
    region: str | None
    conditional_delete: bool
    meter: RequestMeter | None = None


def _open_directory(path: Path, clock: Clock, entropy: Entropy, *, create: bool) -> Store:
    if create:
        return FileStore.make(path, clock, entropy)
    return FileStore(path, clock, entropy)


def _open_s3(
    address: StoreAddress, options: _BucketOptions, clock: Clock, tasks: Tasks
) -> tuple[_Bucket, int]:
    from stado.storage.s3 import CONCURRENT_CREATES, S3Store

    store = S3Store(
        address.bucket,
        address.prefix,
        clock=clock,
        tasks=tasks,
        endpoint=options.endpoint,
        region=options.region,
        conditional_delete=options.conditional_delete,
        meter=options.meter,
    )
    return store, CONCURRENT_CREATES


def _open_gcs(
    address: StoreAddress, options: _BucketOptions, clock: Clock, tasks: Tasks
) -> tuple[_Bucket, int]:
    from stado.storage.gcs import CONCURRENT_CREATES, GcsStore

    store = GcsStore(
        address.bucket,
        address.prefix,
        clock=clock,
        tasks=tasks,
        endpoint=options.endpoint,
        conditional_delete=options.conditional_delete,
        meter=options.meter,
    )
    return store, CONCURRENT_CREATES


def _file_path(address: str) -> Path:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise Misconfigured(
            _without_secret(address), "a file address has three slashes: file:///path"
        )
    return Path(unquote(parts.path))


def _bucket_address(scheme: Scheme, rest: str) -> StoreAddress:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        # The address is not repeated: what stands before an @ may be a secret.
        wrong = (
            "the bucket's name has 3 to 255 letters, digits, '.', '_' and '-', and begins with a "
            "letter or digit: this one does not"
            if bucket
            else "there is no bucket name in the address"
        )
        raise Misconfigured(f"{scheme}://", f"{wrong}: use {scheme}://bucket/prefix")
    prefix = prefix.strip("/")
    if prefix:
        check_key(prefix)
    return StoreAddress(scheme, bucket=bucket, prefix=prefix)


def check_endpoint(endpoint: str | None) -> None:
    """Raises `Misconfigured`. It stands in messages, so that it must hold no secret."""
    if endpoint is None:
        return
    found = _ENDPOINT.match(endpoint)
    if found is None:
        raise Misconfigured("endpoint", "an endpoint is a URL: https://host or http://host:port")
    if "@" in found["server"]:
        raise Misconfigured(
            "endpoint",
            "an endpoint has no user or password in it: credentials come from the environment, a "
            "profile or this machine's role",
        )


def _check_installed(scheme: Scheme) -> None:
    sdk = _SDKS[scheme]
    if not _is_installed(sdk.module):
        raise Misconfigured(
            f"{scheme}://",
            f"this needs {sdk.package}, which is not installed: pip install 'stado[{sdk.extra}]'",
        )


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False
