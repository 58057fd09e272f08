"""A host that refuses, fails or lies: no job pays for it, and no host stops for one job."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.order import Needs
from stado.core.records import Checkpoint
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs import checkpoints
from stado.jobs.changes import cancel
from stado.ports import Channel, Peer, ProcessIdentity
from stado.storage.faults import FaultKind
from stado.storage.observe import Operation
from stado_agent.aftermath import SalvageRota
from stado_agent.workspace import HostFolder, SupervisorNote
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.agent.test_agent import Host
from tests.jobs.world import stored_log

NO_MEMORY = OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def replace_by_file(folder: Path) -> None:
    """Nothing in it can be used any more, as on a disk that is gone or that may only be read."""
    folder.rename(folder.with_name("gone"))
    folder.write_text("")


# --- what a supervisor meets ----------------------------------------------------------------


@pytest.mark.parametrize("at", ["the very start", "the first request"])
def test_a_work_folder_that_cannot_be_used_is_the_hosts_trouble(tmp_path: Path, at: str) -> None:
    scene = Scene(tmp_path)
    claimed = scene.claim()
    jobs = scene.folder.root / "jobs"

    def refuse(_operation: Operation, _key: str) -> None:
        if jobs.is_dir():
            replace_by_file(jobs)

    if at == "the very start":
        replace_by_file(jobs)
    process = scene.run(claimed, before=refuse)
    assert process.errors == []
    assert scene.ending_of(1).reason is Reason.HOST_UNABLE


def test_a_folder_that_the_job_asked_for_and_that_fails_is_the_jobs_fault(tmp_path: Path) -> None:
    """Whatever the error: a mount that is dead must not stop a host."""
    scene = Scene(tmp_path, Spec(command="", host_dir="/mnt/dead"))
    dead = OSError(errno.ENOTCONN, "Transport endpoint is not connected", Path("/mnt/dead"))
    scene.script(Script(refused=dead))
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.LAUNCH_FAILED


def test_a_job_that_no_host_can_start_fails_in_the_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.script(Script(refused=NO_MEMORY))
    for _ in range(30):
        scene.run(scene.claim())
        if State.QUEUED not in scene.world.states(scene.job):
            break
        scene.entry = scene.world.entries()[0]
    assert scene.ending.reason is Reason.LAUNCH_FAILED
    assert "20 hosts before gave it back" in (scene.ending.detail or "")
    assert (scene.final.starts, scene.final.lease_losses) == (0, 0)


def test_a_restore_that_broke_off_is_not_saved_as_the_newest_checkpoint(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    files = {"checkpoints/a": b"A" * 10, "checkpoints/b": b"B" * 10}
    scene.script(Script(seconds=50, files=files))
    scene.processes.fork(lambda _: scene.job_run(scene.claim(), scene.store()).run())
    dying = scene.processes.forked[-1]
    scene.clock.sleep(40)
    dying.kill()
    scene.give_back()
    scene.entry = scene.world.entries()[0]
    names = scene.world.names(keys.checkpoints_folder(scene.job))
    parts = [name for name in names if not name.endswith(".json")]

    def fill_disk(operation: Operation, key: str) -> None:
        if key == parts[1] and operation is not Operation.DELETE:
            raise OSError(errno.ENOSPC, "No space left on device")

    scene.run(scene.claim(), before=fill_disk)
    assert scene.ending_of(2).reason is Reason.HOST_UNABLE
    newest = checkpoints.newest_manifests(scene.world.repo, scene.job, limit=1)[0]
    saved = scene.world.repo.read(Checkpoint, newest).value.files
    assert [(file.path, file.size) for file in saved] == [("a", 10), ("b", 10)]


def test_a_note_that_cannot_be_renewed_ends_no_job(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.script(Script(seconds=100))
    claimed = scene.claim()
    scene.clock.at(20, lambda: replace_by_file(scene.folder.root / "supervisors"))
    process = scene.run(claimed)
    assert process.errors == []
    assert scene.ending.verdict is Verdict.COMPLETED


def test_leftovers_of_the_command_are_not_forgotten_over_its_verification(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Spec(command="", verify="check"))
    scene.script(Script(seconds=20, resistance="Operation not permitted"))
    scene.script(Script(seconds=20), "check")
    claimed = scene.claim()
    scene.processes.fork(lambda _: scene.job_run(claimed, scene.store()).run())
    supervisor = scene.processes.forked[-1]
    scene.clock.sleep(2000)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert supervisor.exit_code is None, "its place has been given away"
    scene.processes.executions[0].process.resistance = None
    scene.clock.sleep(20)
    assert supervisor.exit_code == 0


def test_a_trouble_that_is_over_is_told_no_longer(tmp_path: Path) -> None:
    """Though it ended by a failure of its own: the log is gone, the files are being uploaded."""
    scene = Scene(tmp_path)
    scene.script(Script(seconds=50, files={"output/r": b"42"}))
    claimed = scene.claim()
    refused = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "/log/" in key)
    spool = scene.folder.workspace(scene.job, 1).log
    told: list[str | None] = []

    def upload_slowly(operation: Operation, _key: str) -> None:
        if operation is Operation.UPLOAD:
            told.append(scene.heartbeat().trouble)
            scene.clock.sleep(60)
            told.append(scene.heartbeat().trouble)

    def lose_spool() -> None:
        for path in spool.iterdir():
            path.unlink()

    scene.clock.at(120, lose_spool)
    scene.run(claimed, faults=refused, before=upload_slowly)
    assert told[0] is not None
    assert told[1] is None


def test_an_outage_of_the_store_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.script(Script(seconds=600))
    refused = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "/log/" in key)
    scene.clock.at(590, lambda: setattr(refused, "on", False))
    scene.run(scene.claim(), faults=refused)
    lines = [one for one in caplog.records if "shipping_delayed" in one.getMessage()]
    assert len(lines) == 1


# --- what an agent meets --------------------------------------------------------------------


def test_probation_ends_though_the_supervisor_on_trial_was_gone_already(host: Host) -> None:
    host.processes.scripts["true"] = Script(refused=NO_MEMORY)
    (job,) = host.submit("true")
    host.step_until(lambda: host.hindrance == "host_unable")
    host.step_until(lambda: host.hindrance is None)
    host.script(5)
    done: list[int] = []

    def die() -> None:
        if not done:
            done.append(1)
            for one in host.living():
                one.kill()

    host.on_listing = die
    host.step_for(1200)
    assert done
    assert host.at_rest(job)


def test_a_job_that_could_not_be_started_here_does_not_stop_the_others(host: Host) -> None:
    """It goes first by its priority; others are tried before it is tried here again."""
    host.processes.scripts["bad"] = Script(refused=NO_MEMORY)
    host.script(60, "good")
    host.submit("bad", priority=5)
    good = host.submit(*["good"] * 40)
    host.step_for(900)
    assert all(host.at_rest(job) for job in good)


def test_one_moment_of_trouble_is_one_rest(host: Host) -> None:
    """Though it met all that were begun in it."""
    host.processes.scripts["true"] = Script(refused=OSError(errno.EAGAIN, "again"))
    jobs = host.submit(*["true"] * 4)
    host.step_until(lambda: host.hindrance == "host_unable")
    host.script(5)
    host.submit("other")
    host.step_for(12)
    assert "other" in [one.text for one in host.processes.executions]
    assert all(not host.at_rest(job) for job in jobs)


def test_forks_that_die_at_once_are_no_storm(host: Host) -> None:
    host.hardware.cpu = 1000
    host.hardware.memory_gb = 10_000
    host.submit(*["true"] * 60)
    fork = host.processes.fork

    def fork_and_die(main: Callable[[Channel], None]) -> Peer:
        peer = fork(main)
        peer.kill()
        return peer

    host.processes.fork = fork_and_die  # type: ignore[method-assign]
    host.step_for(10)
    assert len(host.processes.forked) <= 10


def test_all_that_dead_supervisors_left_is_ended_before_the_store_is_asked(host: Host) -> None:
    """A store that is away keeps no command of them running."""
    host.script(5000)
    host.submit("true", "true", "true")
    host.step_to_start(3)
    host.step_for(2)
    for one in host.living():
        one.kill()
    living: list[int] = []
    host.trouble.on = True
    host.on_request = lambda: living.append(host.running())
    host.step_for(1)
    assert living
    assert max(living) == 0


def test_what_cannot_be_killed_keeps_its_epoch_and_its_place(host: Host) -> None:
    """A24: the supervisor is dead, a cancel waits; nobody says cancelled while the process
    lives, and nobody takes the job for lost."""
    host.script(10_000)
    (job,) = host.submit("true", cpu=4)
    host.step_to_start()
    host.step_for(2)
    cancel(host.world.repo, job, by="ada")
    (later,) = host.submit("true")
    host.processes.unkillable = True
    (supervisor,) = host.living()
    supervisor.kill()
    host.step_for(400)
    assert host.world.states(job) == {State.RUNNING}
    assert host.world.states(later) == {State.QUEUED}
    host.processes.unkillable = False
    host.step_until(lambda: host.at_rest(job))
    assert host.world.states(job) == {State.CANCELLED}
    host.script(5)
    host.step_until(lambda: host.at_rest(later))


def test_after_a_reboot_nobody_is_killed(host: Host) -> None:
    """The session of that number is somebody else's by now."""
    host.script(1000)
    host.submit("true")
    host.step_to_start()
    (supervisor,) = host.living()
    supervisor.channel.close()
    host.hardware.boot = "boot-2"
    host.agent = host.new_agent()
    host.agent.take_back()
    assert supervisor.exit_code is None
    assert host.processes.ended_enclosures == []


# --- salvage ----------------------------------------------------------------------------------


def test_a_workspace_that_cannot_be_salvaged_blocks_no_other(host: Host) -> None:
    first, second = sorted(("a" * 16, "b" * 16))
    for job_id in (first, second):
        workspace = host.folder.workspace(job_id, 7)
        workspace.make()
        (workspace.log / "0000000000000000").write_bytes(b"text\n")
    unreadable = host.folder.workspace(first, 7).log / "0000000000000000"
    unreadable.unlink()
    unreadable.mkdir()
    host.step_for(300)
    assert stored_log(host.world.repo, second, 7) == b"text\n"


def test_each_is_salvaged_in_its_turn_and_the_hopeless_less_and_less_often() -> None:
    rota = SalvageRota()
    taken = [(at, rota.take(["a", "b"], at)) for at in range(0, 600, 10)]
    assert [name for _, name in taken[:2]] == ["a", "b"]
    of_a = [at for at, name in taken if name == "a"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(of_a)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= 30
    assert rota.take(["b"], 10_000) == "b"
    assert rota.take(["a"], 10_000) == "a", "who was gone begins anew"


def test_the_log_of_a_supervisor_that_ended_by_an_error_is_salvaged(host: Host) -> None:
    host.script(1000)
    (job,) = host.submit("true")
    host.step_to_start()
    host.step_for(5)
    host.processes.executions[0].process.print(b"unsent\n")
    host.fail_supervisors(RuntimeError("unforeseen"))
    host.step_until(lambda: stored_log(host.world.repo, job, 1) == b"begun\nunsent\n")


def test_a_note_that_cannot_be_read_gives_no_living_workspace_away(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path, "x")
    folder.make()
    workspace = folder.workspace("j", 1)
    workspace.make()
    note = SupervisorNote(ProcessIdentity(7, 7), "j", 1, Needs(1, 1), workspace.root.name)
    folder.write_note(note)
    assert folder.leftover_workspaces() == []
    path = folder.root / "supervisors" / "7.json"
    path.unlink()
    path.mkdir()
    assert folder.leftover_workspaces() == []
    path.rmdir()
    assert [found.root for found in folder.leftover_workspaces()] == [workspace.root]


@pytest.mark.parametrize("where", ["output", "checkpoints"])
def test_a_file_whose_name_is_no_text_ends_no_supervisor(tmp_path: Path, where: str) -> None:
    scene = Scene(tmp_path)
    odd = f"{where}/" + os.fsdecode(b"a\xff")
    scene.script(Script(seconds=100, files={odd: b"x", f"{where}/b": b"x"}))
    process = scene.run(scene.claim())
    assert process.errors == []
    assert scene.ending.verdict is Verdict.COMPLETED
