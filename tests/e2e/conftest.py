from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stado.settings import Settings
from tests.e2e.fleet import Fleet
from tests.servers import Server, run_seaweedfs

MakeFleet = Callable[..., Fleet]


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Server]:
    with run_seaweedfs() as server:
        yield server


@pytest.fixture
def make_fleet(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeFleet]:
    """Makes fleets on `directory` (the default) or `seaweedfs`, and stops them at the end."""
    with ExitStack() as exits:

        def make(kind: str = "directory", *, lease_seconds: float = 5.0) -> Fleet:
            settings, environment = _place(kind, tmp_path, request, monkeypatch)
            fleet = Fleet(settings, tmp_path, lease_seconds=lease_seconds, environment=environment)
            exits.callback(fleet.stop)
            return fleet

        yield make


def _place(
    kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Settings, dict[str, str]]:
    if kind == "directory":
        return Settings(store=str(folder / "store")), {}
    server: Server = request.getfixturevalue("seaweedfs")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"e2e-{abs(hash(str(folder))):x}"[:40]
    server.make_bucket(bucket)
    settings = Settings(store=f"s3://{bucket}/queue", endpoint=server.endpoint)
    return settings, dict(server.environment)
