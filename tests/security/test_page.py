"""SECURITY.md tells of every place where something is stored, and of what is really withheld."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import State
from stado_agent.environment import command_environment
from stado_agent.workspace import Workspace
from tests.architecture.source import REPOSITORY
from tests.jobs.world import World
from tests.security.policies import ROLES

JOB = "zrkkcqmezlzooeqj"
PAGE = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
KEYS = (
    keys.DEPLOYMENT,
    keys.run("mine"),
    *(keys.record(state, JOB) for state in State),
    keys.QUEUE_MARKS,
    keys.by_user("ada", JOB),
    keys.claim_cell(JOB, 1),
    keys.asks(JOB, 1),
    keys.heartbeat(JOB),
    keys.late(JOB, 1),
    keys.log_segment(JOB, 1, 0),
    keys.checkpoint_part(JOB, 1, 1, 0),
    keys.output_file(JOB, 1, "result"),
    keys.published("models") + keys.copied_file(JOB, "result"),
    keys.artifact("digits", 1),
    keys.artifact_use(JOB, "digits", 1),
    keys.policy(JOB),
    keys.capacity("one"),
    keys.schedule("nightly"),
    keys.COORDINATOR_LEASE,
    keys.PROOF,
)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def places() -> set[str]:
    """What the first column of the table of places names."""
    rows = re.findall(r"^\| (.*?) \|", section("What is stored, and where"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("key", KEYS)
def test_each_place_of_the_store_is_told(key: str) -> None:
    """A folder stands for what is in it; of a job's folder the part behind its id counts."""
    plain = key.replace(JOB, "<id>", 1) if key.startswith("status/") else key
    assert any(plain == place or plain.startswith(place) for place in places())


def test_the_variables_that_are_said_to_be_withheld_are_and_no_others(tmp_path: Path) -> None:
    (row,) = re.findall(r"^\| credentials that a job .*$", PAGE, re.MULTILINE)
    told = set(re.findall(r"`([A-Z_]+)`", row.partition("are withheld")[0]))
    host = {f"{name}X" if name.endswith("_") else name: "secret" for name in told}
    others = {"PATH": "/bin", "OTHER_TOKEN": "seen", "CLOUDSDK_CONFIG": "/x"}
    world = World()
    job = world.submit("true", spec=Spec(command=""))
    found = command_environment(
        host | others, world.find(job).record, Workspace(tmp_path / "workspace")
    )
    assert "secret" not in found.values()
    assert others.items() <= found.items()
    assert len(told) == 4


def test_the_folders_of_a_job_are_its_users_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    workspace.make()
    folders = (workspace.root, workspace.work, workspace.output, workspace.checkpoints)
    others = (workspace.log, workspace.inputs)
    assert {folder.stat().st_mode & 0o777 for folder in (*folders, *others)} == {0o700}


def test_each_role_with_a_policy_is_told() -> None:
    told = (REPOSITORY / "docs" / "policies" / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{role}` |" in told for role in ROLES)


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/policies/README.md"])
def test_what_the_pages_point_to_is_there(page: str) -> None:
    path = REPOSITORY / page
    links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
    assert links
    assert all((path.parent / link).exists() for link in links)
