"""Two of the policies on a server that evaluates them itself: not our reading of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result

from stado.core import keys
from stado.core.records import Proof
from stado.errors import Denied
from stado.jobs.deployments import make_deployment
from stado.storage.port import Store
from tests.security.command_line import stado
from tests.security.iam import enforce, make_user
from tests.servers import Server, run_moto
from tests.storage.stores import ENTROPY, s3_store

BUCKET = "stado-enforced"
_ROLES = ("submitter", "reader")


@dataclass(frozen=True)
class Enforced:
    """A deployment on a server that asks IAM, and what each role's programs have in their
    environment."""

    server: Server
    users: Mapping[str, Mapping[str, str]]
    folder: Path

    def stado(self, role: str, *arguments: str) -> Result:
        return stado(self._environment_of(role), *arguments)

    def _environment_of(self, role: str) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "USER": role,
            "STADO_STORE": f"s3://{BUCKET}",
            "STADO_ENDPOINT": self.server.endpoint,
            **self.users[role],
        }


@pytest.fixture(scope="module")
def enforced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enforced]:
    with pytest.MonkeyPatch.context() as patch, run_moto() as server:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        server.make_bucket(BUCKET)
        proof = Proof(create_if_absent=True, compare_and_swap=True, conditional_delete=False)
        make_deployment(s3_store(server, bucket=BUCKET), entropy=ENTROPY, proof=proof, by="tests")
        users = {role: make_user(server, role, BUCKET) for role in _ROLES}
        enforce(server)
        yield Enforced(server, users, tmp_path_factory.mktemp("home"))


@pytest.fixture
def store_of(enforced: Enforced, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Store]:
    """The store as a program of this role opens it."""

    def open_it(role: str) -> Store:
        for name, value in enforced.users[role].items():
            monkeypatch.setenv(name, value)
        return s3_store(enforced.server, bucket=BUCKET, conditional_delete=False)

    return open_it


def _submitted(enforced: Enforced, run_id: str) -> str:
    done = enforced.stado("submitter", "submit", "--run-id", run_id, "true")
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def test_a_submitter_submits_looks_and_cancels(enforced: Enforced) -> None:
    job = _submitted(enforced, "first")
    assert _submitted(enforced, "first") == job
    for command in (
        ["status"],
        ["status", "first"],
        ["hosts"],
        ["job", "show", job],
        ["logs", job],
    ):
        done = enforced.stado("submitter", *command)
        assert done.exit_code == 0, done.stderr
    done = enforced.stado("submitter", "cancel", job)
    assert (done.exit_code, done.stdout.strip()) == (0, f"{job}  cancelled")


def test_a_reader_sees_what_is_there_and_submits_nothing(enforced: Enforced) -> None:
    job = _submitted(enforced, "seen")
    assert job in enforced.stado("reader", "status").stdout
    shown = enforced.stado("reader", "job", "show", job)
    assert shown.exit_code == 0, shown.stderr
    for command in (["submit", "--run-id", "mine", "true"], ["cancel", job], ["queue", "pause"]):
        done = enforced.stado("reader", *command)
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert done.stderr.startswith("stado: ")
        assert "AccessDenied" in done.stderr
        assert "check the credentials" in done.stderr


def test_a_submitter_can_neither_unmake_a_cell_nor_speak_for_an_agent(
    enforced: Enforced, store_of: Callable[[str], Store]
) -> None:
    job = _submitted(enforced, "decided")
    assert enforced.stado("submitter", "cancel", job).exit_code == 0
    store = store_of("submitter")
    for cell in (keys.claim_cell(job, 1), keys.end_cell(job, 1)):
        assert store.get(cell).data
        with pytest.raises(Denied, match="AccessDenied"):
            store.delete(cell, None)
    with pytest.raises(Denied):
        store.delete(keys.run("decided"), None)
    for key in (
        keys.capacity("mine"),
        keys.log_segment(job, 1, 0),
        keys.output_manifest(job, 1),
        keys.COORDINATOR_LEASE,
        keys.DEPLOYMENT,
    ):
        with pytest.raises(Denied, match="AccessDenied"):
            store.put(key, b"{}")


def test_checkpoints_are_written_by_agents_alone(
    enforced: Enforced, store_of: Callable[[str], Store]
) -> None:
    for role in _ROLES:
        with pytest.raises(Denied):
            store_of(role).put(keys.checkpoint_manifest("zrkkcqmezlzooeqj", 1, 1), b"{}")


def test_doctor_tells_what_a_role_lacks_and_which_policy_grants_it(enforced: Enforced) -> None:
    """R247: on a server that asks IAM, and nothing is written by it."""
    _submitted(enforced, "probed")
    done = enforced.stado("reader", "doctor", "--role", "submitter", "--json")
    assert done.exit_code == 1, done.stderr
    found = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "role"]
    codes = {one["code"] for one in found if not one["ok"]}
    assert {"write_denied", "delete_denied"} <= codes
    assert {one["remedy"] for one in found if one["remedy"]} == {
        "docs/policies/s3/submitter.json grants it"
    }
    done = enforced.stado("submitter", "doctor", "--role", "submitter", "--json")
    answer = json.loads(done.stdout)
    found = [one for one in answer["findings"] if one["check"] == "role"]
    assert [one["code"] for one in found if one["ok"]] == ["role_allowed"], found
    assert not [one for one in found if one["remedy"]]
    untold = {one["check"] for one in answer["findings"] if one["unknown"]}
    assert "bucket" in untold
    assert "coordinator" in untold
    assert answer["complete"] is False
