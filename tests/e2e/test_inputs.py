"""What one job leaves, another one takes along, on real stores with real processes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from stado.composition import live_machine, open_store_of
from stado.core import keys
from stado.core.inputs import parse_wanted
from stado.core.records import Record
from stado.core.spec import make_request
from stado.core.states import Reason, State
from stado.pinning import Unpinned, pin
from stado.settings import Settings
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for
from tests.jobs.world import stored_log
from tests.servers import Server

LEAVE = "mkdir $STADO_OUTPUT_DIR/model; printf weights > $STADO_OUTPUT_DIR/model/w"
PRINT = """cd $STADO_INPUT_DIR; for f in $(find . -type f | sort); do cat $f; echo " $f"; done"""


def _submit(fleet: Fleet, command: str, *inputs: str) -> str:
    request = make_request([command], SMALL, batch=False)
    unpinned = Unpinned(input_artifacts=tuple(map(parse_wanted, inputs)))
    spec = pin(fleet.repo, request, unpinned).shared
    return fleet.submit(command, spec=spec).base_id


def _ended(fleet: Fleet, job_id: str) -> Record:
    wait_for(lambda: fleet.story(job_id).record.state.at_rest, what=lambda: f"{job_id} goes on")
    return fleet.story(job_id).record


def _object_elsewhere(server: Server, bucket: str) -> str:
    """In another bucket of the server."""
    server.make_bucket(bucket)
    store = open_store_of(
        Settings(store=f"s3://{bucket}", endpoint=server.endpoint), live_machine()
    )
    store.put("deep/er/table.csv", b"4,5")
    store.close()
    return f"s3://{bucket}/deep/er/table.csv#sha256={hashlib.sha256(b'4,5').hexdigest()}"


@pytest.mark.parametrize("kind", ["directory", "seaweedfs"])
def test_a_job_takes_along_what_another_one_left_and_an_object(
    make_fleet: MakeFleet, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """R139: an artifact, a job's output, a file of the host and, on a server, an object of another
    bucket are printed by the second job; once an object is damaged in the store the third fails,
    and names the input."""
    fleet = make_fleet(kind)
    fleet.agent("one", "--cache-gb", "0")
    source = _submit(fleet, LEAVE)
    assert _ended(fleet, source).state is State.COMPLETED
    published = fleet.stado("artifact", "publish", source, "--name", "model", "--path", "model")
    assert (published.stdout, published.returncode) == ("model@1\n", 0)
    local = tmp_path / "data.csv"
    local.write_text("1,2,3")
    address = f"{local.as_uri()}#sha256={hashlib.sha256(b'1,2,3').hexdigest()}"
    inputs = ["a=artifact:model", f"b={source}", f"c={address}"]
    lines = ["weights ./a/w", "weights ./b/model/w", "1,2,3 ./c/data.csv"]
    if kind != "directory":
        other = _object_elsewhere(request.getfixturevalue(kind), "elsewhere")
        inputs.append(f"d={other}")
        lines.append("4,5 ./d/table.csv")
    taking = _submit(fleet, PRINT, *inputs)
    assert _ended(fleet, taking).state is State.COMPLETED
    assert stored_log(fleet.repo, taking, 1).decode().splitlines() == lines
    fleet.repo.store.put(keys.output_file(source, 1, "model/w"), b"weightz")
    checked = fleet.stado("artifact", "verify", "model@1")
    assert checked.returncode == 1
    assert checked.stdout.startswith("model/w: it has 7 bytes")
    failed = _ended(fleet, _submit(fleet, PRINT, inputs[0]))
    assert failed.ending is not None
    assert (failed.state, failed.ending.reason) == (State.FAILED, Reason.INPUT_UNAVAILABLE)
    assert str(failed.ending.detail).startswith("input a: w (status/")
    assert failed.ending.started_at is None
