"""What a submitter may name as an input of a job, and how that is written.

A reference is words: `JOB`, `JOB/path`, `artifact:NAME`, `artifact:NAME@3/path`, or the address of
an object with its SHA-256. What it becomes in a spec is bytes that are known by their digest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from stado.errors import Refused

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of inputs, which become folders, and of artifacts, which become keys."""

NAME_RULE = "1 to 100 characters of A-Z a-z 0-9 . _ -, a letter or digit first"

_ARTIFACT = "artifact:"
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_POLICY = re.compile(r"[^/]*:(best|latest)")
_VERSION = re.compile(r"[1-9][0-9]{0,5}")
_DIGEST = re.compile(r"sha256=(?P<digest>[0-9a-fA-F]{64})")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
_KEY_PART = re.compile(r"[!-\-0-\[\]-~][!-.0-\[\]-~]{0,199}")
"""As every store holds it (`stado.storage.keys`)."""

_KEY_BYTES_MAX = 800


class Scheme(StrEnum):
    """Where an object can be that is not in this store."""

    S3 = "s3"
    GCS = "gs"
    FILE = "file"
    HTTPS = "https"


@dataclass(frozen=True, slots=True)
class JobOutput:
    """What a job left, or a part of it. `path` "": all of it."""

    job: str
    """As it was typed."""
    path: str


@dataclass(frozen=True, slots=True)
class PublishedArtifact:
    """A published artifact, or a part of it. `version` None: the newest."""

    name: str
    version: int | None
    path: str


@dataclass(frozen=True, slots=True)
class PinnedObject:
    """An object at an address, known by its digest."""

    address: str
    sha256: str


Reference = JobOutput | PublishedArtifact | PinnedObject


@dataclass(frozen=True, slots=True)
class Wanted:
    """An input as it was asked for."""

    name: str
    reference: Reference


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An address, taken apart. A bucket's object has a bucket and a key, any other a path."""

    scheme: Scheme
    name: str
    """Of the file that is made of it."""
    bucket: str = ""
    key: str = ""
    path: str = ""


def parse_wanted(text: str) -> Wanted:
    """`NAME=REFERENCE`. Raises `Refused`, naming what is wrong and what helps."""
    name, equals, reference = text.partition("=")
    if not equals or not reference:
        raise Refused(
            "input_invalid",
            f"input {text!r} names nothing: write NAME=REFERENCE, such as data=artifact:digits@2",
        )
    if not NAME_PATTERN.fullmatch(name):
        raise Refused("input_invalid", f"input name {name!r} cannot be used: {NAME_RULE}")
    return Wanted(name, parse_reference(reference, name))


def parse_reference(text: str, name: str) -> Reference:
    """`name` is the input's, for errors. Raises `Refused`."""
    scheme = _SCHEME.fullmatch(text)
    if scheme is not None:
        return _parse_object(text, name)
    if text.startswith(_ARTIFACT):
        return _parse_artifact(text.removeprefix(_ARTIFACT), name)
    if _POLICY.fullmatch(text):
        raise Refused(
            "input_checkpoint",
            f"input {name}: {text!r} is a checkpoint, which is no input: start from it with --from",
        )
    job, _, path = text.partition("/")
    return JobOutput(job, _checked_path(path, name))


def parse_artifact_name(text: str) -> tuple[str, int | None]:
    """`NAME` or `NAME@VERSION`. Raises `Refused`."""
    name, at, version = text.partition("@")
    check_artifact_name(name)
    if at and not _VERSION.fullmatch(version):
        raise Refused(
            "artifact_invalid",
            f"artifact {text!r} has no version {version!r}: versions are 1, 2, 3 …",
        )
    return name, int(version) if at else None


def check_artifact_name(name: str) -> None:
    """Raises `Refused`."""
    if not NAME_PATTERN.fullmatch(name):
        raise Refused("artifact_invalid", f"artifact name {name!r} cannot be used: {NAME_RULE}")


def checked_path(path: str) -> str:
    """A path below a job's output, without a slash at its end; "" is all of it. Raises
    `Refused`."""
    trimmed = path.rstrip("/")
    parts = trimmed.split("/") if trimmed else []
    if any(part in ("", ".", "..") for part in parts) or not trimmed.isprintable():
        raise Refused(
            "path_invalid", f"path {path!r} is none below an output: write it as folder/file"
        )
    return trimmed


def parse_place(address: str) -> ObjectPlace:
    """Of an object's address, without its digest. Raises `Refused`."""
    found = _SCHEME.fullmatch(address)
    if found is None or found["scheme"] not in set(Scheme):
        raise Refused(
            "address_invalid",
            f"objects at {_without_secret(address)!r} cannot be fetched: use s3://bucket/key, "
            "gs://bucket/key, file:///path or https://host/path",
        )
    scheme = Scheme(found["scheme"])
    if scheme in (Scheme.S3, Scheme.GCS):
        return _bucket_place(scheme, found["rest"])
    return _file_place(address) if scheme is Scheme.FILE else _https_place(address)


def _checked_path(path: str, name: str) -> str:
    try:
        return checked_path(path)
    except Refused as error:
        raise Refused(error.code, f"input {name}: {error.text}") from None


def _parse_artifact(text: str, name: str) -> PublishedArtifact:
    said, _, path = text.partition("/")
    try:
        artifact, version = parse_artifact_name(said)
    except Refused as error:
        raise Refused(error.code, f"input {name}: {error.text}") from None
    return PublishedArtifact(artifact, version, _checked_path(path, name))


def _parse_object(text: str, name: str) -> PinnedObject:
    address, _, fragment = text.partition("#")
    try:
        place = parse_place(address)
    except Refused as error:
        raise Refused(error.code, f"input {name}: {error.text}") from None
    digest = _DIGEST.fullmatch(fragment)
    if digest is None:
        raise Refused(
            "input_unpinned",
            f"input {name}: {address} states no SHA-256, and could mean something else tomorrow: "
            f"write {address}#sha256=DIGEST (`sha256sum {place.name}` prints it)",
        )
    return PinnedObject(address, digest["digest"].lower())


def _bucket_place(scheme: Scheme, rest: str) -> ObjectPlace:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or not key:
        # The address is not repeated: what stands before an @ may be a secret.
        raise Refused("address_invalid", f"the address must be {scheme}://bucket/key")
    parts = key.split("/")
    if len(key) > _KEY_BYTES_MAX or not all(map(_KEY_PART.fullmatch, parts)) or "?" in key:
        raise Refused(
            "address_invalid",
            f"{scheme}://{bucket}/{key} cannot be fetched: parts of the key are visible ASCII "
            "without `?` and `\\`, not empty and with no dot in front. Copy the object to another "
            "key",
        )
    return ObjectPlace(scheme, parts[-1], bucket=bucket, key=key)


def _file_place(address: str) -> ObjectPlace:
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.netloc or parts.query or not path.startswith("/"):
        raise Refused(
            "address_invalid",
            f"{_without_secret(address)!r} is no file of a host: it has three slashes, "
            "file:///path, and %3F for ?",
        )
    return ObjectPlace(Scheme.FILE, _file_name(path, address), path=path)


def _https_place(address: str) -> ObjectPlace:
    try:
        parts = urlsplit(address)
        (parts.hostname or "").encode("idna")
        _ = parts.port
    except ValueError as error:
        raise Refused("address_invalid", f"that is no https:// address: {error}") from None
    if "@" in parts.netloc or parts.query or not parts.hostname:
        raise Refused(
            "address_invalid",
            f"{_without_secret(address)!r} cannot be fetched: an https:// address has a host, and "
            "no user, password or query, which may be secrets and would be stored with the job",
        )
    if not (address.isascii() and address.isprintable() and " " not in address):
        raise Refused("address_invalid", "an https:// address is ASCII: write the rest as %20")
    return ObjectPlace(Scheme.HTTPS, _file_name(unquote(parts.path), address), path=address)


def _file_name(path: str, address: str) -> str:
    name = path.rpartition("/")[2]
    if name in ("", ".", "..") or not path.isprintable():
        raise Refused("address_invalid", f"{_without_secret(address)!r} names no file")
    return name


def _without_secret(address: str) -> str:
    """What stands before an @, or behind a ?, may be one."""
    scheme, _, rest = address.partition("://")
    kept = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{kept}"
