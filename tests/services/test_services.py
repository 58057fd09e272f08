"""`stado agent install`, `status`, `logs`, `uninstall`, with a stand-in for systemd's commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stado.core import keys
from stado.system.hardware import LiveHardware
from stado.system.processes import LiveProcesses
from tests.cli.conftest import PYTHON_PATH, World, make_world, report
from tests.services.stand_in import SystemdStandIn

UNIT = "stado-agent.service"


class Host:
    """A user's home, and systemd."""

    def __init__(self, folder: Path, systemd: SystemdStandIn) -> None:
        self.home = folder
        self.systemd = systemd
        self.unit = folder / ".config/systemd/user" / UNIT
        self.variables = folder / ".config/stado/agent.env"
        self.work = folder / ".local/state/stado"
        self.own = self.work / f"local@{LiveHardware().host_name()}"

    def __call__(self, *args: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        from click.testing import CliRunner

        from stado.cli.main import cli

        done = CliRunner().invoke(cli, args)
        return done.exit_code, done.stdout, done.stderr

    def ok(self, *args: str) -> str:
        code, out, err = self(*args)
        assert code == 0, out + err
        return out

    def refused(self, *args: str) -> str:
        code, out, err = self(*args)
        assert (code, out) == (2, ""), out + err
        return err

    def refused_after_writing(self, *args: str) -> str:
        code, out, err = self(*args)
        assert code == 2, out + err
        return err

    def age(self) -> None:
        """It was installed and started an hour ago."""
        at = time.time() - 3600
        for path in (self.unit, self.variables):
            os.utime(path, (at, at))
        self.systemd.change_unit(UNIT, started_at=at)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    systemd = SystemdStandIn(tmp_path / "systemd")
    for name in [name for name in os.environ if name.startswith(("STADO_", "AWS_", "XDG_"))]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    values = {"HOME": str(home), "USER": "ada", "COLUMNS": "100", "PYTHONPATH": PYTHON_PATH}
    for name, value in {**values, **systemd.environment()}.items():
        monkeypatch.setenv(name, value)
    return Host(home, systemd)


INSTALL = ("agent", "install", "--user", "--store", "s3://lab-jobs/stado")


def test_print_shows_all_that_would_be_written_and_does_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R240, R243: values of secrets are not shown."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    shown = host.ok(*INSTALL, "--cpu", "8", "--print")
    assert f"# {host.unit} (mode 0644)" in shown
    assert f"# {host.variables} (mode 0600)" in shown
    assert "AWS_SECRET_ACCESS_KEY=…" in shown
    assert "hush" not in shown
    assert "agent run --store s3://lab-jobs/stado" in shown
    assert "--cpu=8.0" in shown
    assert shown.endswith(f"systemctl --user restart {UNIT}\n")
    assert host.systemd.take_calls() == []
    assert list(host.home.iterdir()) == []


def test_print_takes_no_systemd(host: Host) -> None:
    host.systemd.tell(runs=False)
    assert "DelegateSubgroup=" in host.ok(*INSTALL, "--print")


def test_an_installation_writes_enables_and_starts(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R240, R243: secrets are in a file of mode 0600, and nowhere else."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    done = host.ok(*INSTALL)
    assert f"{UNIT} runs (process 4711)" in done
    assert host.systemd.take_calls() == ["daemon-reload", f"enable {UNIT}", f"restart {UNIT}"]
    assert host.variables.stat().st_mode & 0o777 == 0o600
    assert 'AWS_SECRET_ACCESS_KEY="hush"' in host.variables.read_text()
    assert "hush" not in host.unit.read_text() + done


def test_the_same_again_changes_nothing(host: Host) -> None:
    """R240"""
    host.ok(*INSTALL, "--label", "zone=a")
    host.systemd.take_calls()
    before = host.unit.stat().st_mtime_ns
    again = host.ok(*INSTALL, "--label", "zone=a")
    assert again == f"nothing to change: {UNIT} is installed as asked\n"
    assert host.systemd.take_calls() == []
    assert host.unit.stat().st_mtime_ns == before


def test_other_words_are_shown_and_start_it_anew(host: Host) -> None:
    """R240"""
    host.ok(*INSTALL)
    host.systemd.take_calls()
    done = host.ok(*INSTALL, "--label", "zone=a")
    assert f"changed {host.unit}" in done
    (added,) = [line for line in done.splitlines() if line.startswith("  +")]
    assert added.startswith("  +ExecStart=")
    assert added.endswith("--label=zone=a")
    assert host.systemd.take_calls() == ["daemon-reload", f"restart {UNIT}"]


def test_credentials_of_this_shell_are_kept_by_a_later_call_without_them(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R243"""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    host.ok(*INSTALL)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "nothing to change" in host.ok(*INSTALL)
    assert 'AWS_SECRET_ACCESS_KEY="hush"' in host.variables.read_text()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    done = host.ok(*INSTALL)
    assert "~AWS_SECRET_ACCESS_KEY=…" in done
    assert "other" not in done


def test_a_token_that_ends_by_itself_is_taken_along_with_a_word(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R243: and goes when keys are given that last."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "hush")
    for words in (("--print",), ()):
        code, _, err = host(*INSTALL, *words)
        assert code == 0
        assert "AWS_SESSION_TOKEN of this shell ends by itself" in err
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lasts")
    assert "  -AWS_SESSION_TOKEN=…" in host.ok(*INSTALL)
    assert "AWS_SESSION_TOKEN" not in host.variables.read_text()


def test_a_file_of_variables_that_others_can_read_is_closed(host: Host) -> None:
    """R243"""
    host.ok(*INSTALL)
    host.variables.chmod(0o644)
    code, _, err = host(*INSTALL)
    assert code == 0
    assert "could be read by others" in err
    assert host.variables.stat().st_mode & 0o777 == 0o600


def test_another_variable_goes_along_by_name_and_one_that_is_not_set_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LICENCE_SERVER", "licences:27000")
    host.ok(*INSTALL, "--env", "LICENCE_SERVER")
    assert 'LICENCE_SERVER="licences:27000"' in host.variables.read_text()
    assert "--env NOWHERE" in host.refused(*INSTALL, "--env", "NOWHERE")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"linger": False}, "loginctl enable-linger"),
        ({"runs": False}, "No medium found: log in as this user"),
    ],
)
def test_a_host_that_cannot_run_it_is_named_with_the_remedy(
    host: Host, facts: dict[str, bool], words: str
) -> None:
    """R240"""
    host.systemd.tell(**facts)
    assert words in host.refused(*INSTALL)
    assert not host.unit.exists()
    assert host.systemd.take_calls() == []


def test_a_host_without_systemd_says_so(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """R240"""
    monkeypatch.setenv("PATH", str(host.home))
    assert "there is no `systemctl` on this host" in host.refused(*INSTALL)


def test_a_program_that_the_service_could_not_run_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R240: one that is found by this shell's environment alone."""
    program = host.home / "python"
    program.write_text('#!/bin/sh\n[ -n "$PYTHONPATH" ] || { echo no stado >&2; exit 1; }\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert "(no stado): install stado where" in host.refused(*INSTALL)


def test_one_that_does_not_start_is_told_with_its_last_lines(host: Host) -> None:
    """R242"""
    host.systemd.tell(starts=False)
    code, _, err = host(*INSTALL)
    assert code == 1
    assert "a line of the log" in err
    assert f"{UNIT} does not start (exit code 2)" in err


@pytest.mark.parametrize("fails", ["daemon-reload", "restart"])
def test_an_installation_that_failed_half_way_is_completed_by_the_same_words(
    host: Host, fails: str
) -> None:
    """R240: nothing is "installed as asked" while what was there before runs on."""
    host.ok(*INSTALL)
    host.age()
    host.systemd.tell(fails=[fails])
    assert "Connection timed out" in host.refused_after_writing(*INSTALL, "--label", "zone=a")
    if fails == "daemon-reload":
        host.systemd.change_unit(UNIT, needs_reload=True)
    host.systemd.tell(fails=[])
    host.systemd.take_calls()
    done = host.ok(*INSTALL, "--label", "zone=a")
    assert f"{UNIT} had not taken up yet what was written before" in done
    assert f"{UNIT} runs (process" in done
    reload = ["daemon-reload"] if fails == "daemon-reload" else []
    assert host.systemd.take_calls() == [*reload, f"restart {UNIT}"]
    assert "nothing to change" in host.ok(*INSTALL, "--label", "zone=a")


def test_what_was_written_without_a_start_is_taken_up_by_a_later_call(host: Host) -> None:
    """R240"""
    host.ok(*INSTALL)
    host.age()
    host.ok(*INSTALL, "--label", "zone=a", "--no-start")
    host.systemd.take_calls()
    host.ok(*INSTALL, "--label", "zone=a")
    assert host.systemd.take_calls() == [f"restart {UNIT}"]


def test_a_service_is_not_taken_for_started_while_the_one_before_still_runs(host: Host) -> None:
    """R242: systemd does it a moment later."""
    host.ok(*INSTALL)
    host.systemd.change_unit(UNIT, slow=True, restarts=3)
    assert f"{UNIT} runs (process 4712)" in host.ok(*INSTALL, "--label", "zone=a")


def test_no_start_leaves_it_to_the_next_start_of_the_host(host: Host) -> None:
    host.ok(*INSTALL, "--no-start")
    assert host.systemd.take_calls() == ["daemon-reload", f"enable {UNIT}"]


def test_a_second_one_has_a_name_a_unit_and_an_agent_of_its_own(host: Host) -> None:
    host.ok(*INSTALL)
    host.ok("agent", "install", "--user", "--store", "s3://other/stado", "--name", "other")
    text = (host.unit.parent / "stado-agent-other.service").read_text()
    assert "--consumer-id local@" in text
    assert "-other --work-dir" in text
    assert "works on s3://lab-jobs/stado here" in host.refused(
        "agent", "install", "--user", "--store", "s3://other/stado"
    )


def test_a_relative_store_and_relative_files_count_from_any_folder(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(host.home)
    files = ("--channels", "channels.toml", "--prices", "prices.toml")
    host.ok("coordinator", "install", "--user", "--store", "queue", *files)
    text = (host.unit.parent / "stado-coordinator.service").read_text()
    assert f"--store {host.home}/queue" in text
    assert f"--channels={host.home}/channels.toml" in text
    assert f"--prices={host.home}/prices.toml" in text


@pytest.mark.parametrize(
    "words",
    [
        ("--user", "--system"),
        ("--user", "--run-as", "ada"),
        ("--user", "--group", "docker"),
        ("--system", "--no-linger"),
    ],
)
def test_words_that_do_not_go_together_are_refused(host: Host, words: tuple[str, ...]) -> None:
    assert "--" in host.refused("agent", "install", "--store", "/srv/queue", *words)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--consumer-id", "local@a\nUser=root"),
        ("--work-dir", "/srv/a\nUser=root"),
        ("--region", "eu\nUser=root"),
    ],
)
def test_what_would_begin_a_line_of_a_unit_is_refused(host: Host, option: str, value: str) -> None:
    """R240"""
    told = host.refused(*INSTALL, option, value, "--print")
    assert option in told
    assert "plain text" in told or "letters" in told, told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--label", "zone:a"), "label 'zone:a' must be KEY=VALUE"),
        (("--machine-type", "a b"), "machine-type 'a b' must be"),
        (("--secrets-dir", "/srv/s", "--secrets-from", "aws"), "not from both"),
        (("--secrets-endpoint", "http://vault.example.org"), "is no https:// address"),
    ],
)
def test_what_the_agent_would_refuse_at_its_start_is_refused_before(
    host: Host, words: tuple[str, ...], sentence: str
) -> None:
    for more in (("--print",), ()):
        assert sentence in host.refused(*INSTALL, *words, *more)


def test_print_says_what_nobody_has_looked_at(host: Host) -> None:
    _, _, told = host(*INSTALL, "--print")
    assert "nothing was done. Still to be checked, when it is installed: that" in told
    assert "by the agent when it starts: the store, what --work-dir, --docker" in told


def test_a_group_that_is_not_there_is_refused(host: Host) -> None:
    """R240"""
    words = ("--system", "--store", "/srv/queue", "--run-as", "root", "--print", "--group")
    assert "--group 'no-such' names no group" in host.refused("agent", "install", *words, "no-such")
    assert "SupplementaryGroups=root" in host.ok("agent", "install", *words, "root")
    told = host.refused("agent", "install", *words, "a\nUser=root")
    assert "--group" in told


def test_an_endpoint_with_a_password_gets_into_no_unit(host: Host) -> None:
    """R243"""
    words = ("--endpoint", "https://ada:hush@minio.example.org", "--print")
    assert "hush" not in host.refused(*INSTALL, *words)


# --- looking --------------------------------------------------------------------------------


@pytest.fixture
def world(host: Host) -> World:
    return make_world(host.home / "store")


def test_status_tells_of_unit_process_log_and_store(host: Host, world: World) -> None:
    """R244"""
    host.ok("agent", "install", "--user", "--store", str(world.path))
    code, shown, _ = host("agent", "status")
    assert code == 1
    for text in (f"{UNIT} of the user", "active (running)", "at work", "4711", "a line of the log"):
        assert text in shown
    assert "no agent local@" in shown
    answer = json.loads(host("agent", "status", "--json")[1])
    assert (answer["active"], answer["process"], answer["jobs_here"]) == ("active", 4711, [])
    assert answer["in_store"]["state"] == "absent"


def test_status_is_0_once_the_store_hears_the_agent(host: Host, world: World) -> None:
    """R244: and what stands there unreadably is neither absent nor unreachable."""
    host.ok("agent", "install", "--user", "--store", str(world.path))
    name = host.own.name
    report(world, name)
    assert f"{name} is working" in host.ok("agent", "status")
    world.repo.store.put(keys.capacity(name), b"[]")
    code, out, _ = host("agent", "status", "--json")
    assert code == 1
    assert json.loads(out)["in_store"]["state"] == "unreadable"


def test_status_says_that_the_folder_cannot_be_read(
    host: Host, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R244: that is not "none". (A file where the notes were: root may read every folder.)"""
    host.ok("agent", "install", "--user", "--store", str(world.path))
    host.own.mkdir(parents=True)
    (host.own / "supervisors").symlink_to("supervisors")
    assert "which jobs run here is not known" in " ".join(host("agent", "status")[1].split())
    assert json.loads(host("agent", "status", "--json")[1])["jobs_here"] is None


def test_status_of_a_service_and_of_a_store_are_two_things(host: Host, world: World) -> None:
    """R246"""
    for words in (("--user",), ("--system",), ("--name", "other")):
        told = host.refused("coordinator", "status", "--store", str(world.path), *words)
        assert "--name, --user and --system mean a service" in " ".join(told.split())


def test_status_of_a_store_that_is_not_there_says_that_nobody_knows(host: Host) -> None:
    """R244: it is no store without this host."""
    host.ok("agent", "install", "--user", "--store", str(host.home / "nowhere"))
    code, shown, _ = host("agent", "status")
    assert code == 1
    assert "it could not be asked about local@" in shown
    answer = json.loads(host("agent", "status", "--json")[1])
    assert answer["in_store"]["state"] == "unreachable"


def test_status_of_one_that_does_not_run_is_1(host: Host, world: World) -> None:
    """R244"""
    host.ok("coordinator", "install", "--user", "--store", str(world.path), "--no-start")
    code, out, _ = host("coordinator", "status")
    assert code == 1
    assert "inactive" in out
    assert "no coordinator has worked there" in out


def test_what_is_not_installed_is_refused_with_where_it_was_looked_for(host: Host) -> None:
    """R244"""
    for command in ("status", "logs", "uninstall"):
        assert f"there is no {UNIT} in" in host.refused("agent", command)


def test_an_uninstall_leaves_what_it_names(host: Host) -> None:
    """R245"""
    host.ok(*INSTALL)
    host.own.mkdir(parents=True)
    host.systemd.take_calls()
    done = host.ok("agent", "uninstall")
    assert f"removed {host.unit}" in done
    assert f"left {host.variables}" in done
    assert f"left {host.own}" in done
    assert not host.unit.exists()
    assert host.systemd.take_calls() == [
        f"stop {UNIT}",
        f"disable {UNIT}",
        "daemon-reload",
        f"reset-failed {UNIT}",
    ]


def test_a_purge_leaves_nothing(host: Host) -> None:
    """R245"""
    host.ok(*INSTALL)
    host.own.mkdir(parents=True)
    code, out, err = host("agent", "uninstall", "--purge")
    assert code == 0
    assert f"--purge removes {host.own}\n" in err
    assert f"removed {host.own}\nremoved {host.work}\n" in out
    assert not host.variables.exists()
    assert not host.work.exists()


def test_a_purge_takes_only_the_agents_own_folder(host: Host) -> None:
    """R245: a work folder may be other agents', and anything else's, too."""
    host.ok(*INSTALL)
    host.own.mkdir(parents=True)
    (host.work / "local@box-other" / "jobs").mkdir(parents=True)
    write_note(host, started=LiveProcesses().own_identity().started, agent="local@box-other")
    host.ok("agent", "uninstall", "--purge")
    assert not host.own.exists()
    assert [path.name for path in host.work.iterdir()] == ["local@box-other"]


def test_a_purge_can_follow_a_plain_uninstall(host: Host) -> None:
    """R245"""
    host.ok(*INSTALL)
    host.own.mkdir(parents=True)
    code, _, err = host("agent", "uninstall")
    assert code == 0
    assert "`stado agent uninstall --user --purge` removes what is left" in err
    host.systemd.take_calls()
    done = host.ok("agent", "uninstall", "--user", "--purge")
    assert f"removed {host.variables}\nremoved {host.own}\n" in done
    assert host.systemd.take_calls() == []
    assert "there is no" in host.refused("agent", "uninstall", "--user", "--purge")


def test_a_folder_that_was_stated_is_named_with_what_removes_it(host: Host, tmp_path: Path) -> None:
    """R245: without a unit nothing tells where it is."""
    host.ok(*INSTALL, "--work-dir", str(tmp_path / "scratch"))
    own = tmp_path / "scratch" / host.own.name
    own.mkdir(parents=True)
    code, _, err = host("agent", "uninstall")
    assert code == 0
    assert f"`rm -r {own}` removes" in " ".join(err.split())


def test_a_purge_looks_for_jobs_once_more_when_the_agent_is_stopped(host: Host) -> None:
    """R245: it may have begun one meanwhile."""
    host.ok(*INSTALL)
    write_note(host, started=LiveProcesses().own_identity().started)
    notes, late = host.own / "supervisors", host.home / "late"
    notes.rename(late)
    host.systemd.tell(at_stop=[str(late), str(notes)])
    host.systemd.take_calls()
    told = host.refused("agent", "uninstall", "--purge")
    assert "1 job (abcdefghijklmnop) runs in" in told
    assert f"`systemctl --user start {UNIT}` lets it work on" in " ".join(told.split())
    assert host.systemd.take_calls() == [f"stop {UNIT}"]
    assert host.unit.exists()
    assert notes.exists()


@pytest.mark.parametrize("note", [b"", b"{}", b'{"supervisor": [1'])
def test_a_note_of_a_living_process_that_tells_no_job_refuses_a_purge(
    host: Host, note: bytes
) -> None:
    """R245"""
    host.ok(*INSTALL)
    write_note(host, started=1)
    (host.own / "supervisors" / f"{os.getpid()}.json").write_bytes(note)
    told = host.refused("agent", "uninstall", "--purge")
    assert f"1 job (unknown, of process {os.getpid()}) runs in" in told
    assert host.own.exists()


def test_a_purge_leaves_the_folder_of_an_agent_that_works_there(host: Host) -> None:
    """R245: by hand, say. (Of this process's own locks the system tells this process nothing.)"""
    host.ok(*INSTALL)
    host.own.mkdir(parents=True)
    holder = (
        "import sys; from pathlib import Path; from stado.system.folder_lock import FolderLock\n"
        "with FolderLock(Path(sys.argv[1])) as ours: print(ours, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(host.own / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "True\n"
        assert "an agent works in" in host.refused("agent", "uninstall", "--purge")
        assert host.own.exists()
        held.communicate("")


def write_note(host: Host, *, started: int, agent: str | None = None) -> None:
    notes = (host.own if agent is None else host.work / agent) / "supervisors"
    notes.mkdir(parents=True, exist_ok=True)
    note = {"supervisor": [os.getpid(), started], "job_id": "abcdefghijklmnop"}
    (notes / f"{os.getpid()}.json").write_text(json.dumps(note))


def test_jobs_that_run_are_not_left_without_a_word(host: Host) -> None:
    """R245: and are never ended."""
    host.ok(*INSTALL)
    write_note(host, started=LiveProcesses().own_identity().started)
    host.systemd.take_calls()
    assert "1 job (abcdefghijklmnop) runs here" in host.refused("agent", "uninstall")
    assert "--purge would remove" in host.refused("agent", "uninstall", "--purge", "--leave-jobs")
    assert host.systemd.take_calls() == []
    code, _, err = host("agent", "uninstall", "--leave-jobs")
    assert code == 0
    assert "1 job goes on to its end: abcdefghijklmnop" in err


@pytest.mark.parametrize("option", ["--work-dir", "--consumer-id"])
def test_an_agent_moves_to_no_other_folder_while_jobs_run(host: Host, option: str) -> None:
    """R245: it would not know them."""
    host.ok(*INSTALL)
    write_note(host, started=LiveProcesses().own_identity().started)
    words = (option, str(host.home / "other") if option == "--work-dir" else "local@other")
    before = host.unit.read_text()
    told = " ".join(host.refused(*INSTALL, *words).split())
    assert f"1 job (abcdefghijklmnop) runs in {host.own}" in told
    assert host.unit.read_text() == before
    write_note(host, started=1)
    code, _, err = host(*INSTALL, *words)
    assert code == 0
    assert f"{host.own}, its folder until now, stays" in " ".join(err.split())


def test_a_note_of_a_supervisor_that_is_gone_holds_nobody(host: Host) -> None:
    """R245"""
    host.ok(*INSTALL)
    write_note(host, started=1)
    host.ok("agent", "uninstall")
