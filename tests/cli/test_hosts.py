"""The agents: what each has free, and why it takes no jobs."""

from __future__ import annotations

import os
import re
import signal
from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.records import (
    Hindrance,
    HostOrder,
    HostOrders,
    JobClaim,
    JobEnd,
    JobReport,
)
from stado.core.spec import Spec, make_request
from stado.core.states import Verdict
from stado.jobs.health import Holdings, agents
from stado.jobs.host_orders import find_orders
from stado.jobs.repository import Repository
from stado.jobs.submit import submit
from stado.storage.observe import CountingStore
from tests.cli.conftest import Program, World, report
from tests.cli.terminal import Terminal

DETAIL = "/work has 0.4 GiB left and 2 are kept free: remove something there"


def disk_full(world: World) -> Hindrance:
    since = world.repo.now() - timedelta(seconds=192)
    return Hindrance(code="disk_full", detail=DETAIL, since=since)


def test_no_host_is_said_with_the_remedy(stado: Program, world: World) -> None:
    result = stado("hosts")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no host is at work: `stado up` here" in result.stderr
    assert stado.json("hosts")["hosts"] == []


def test_a_row_an_agent(stado: Program, world: World) -> None:
    jobs = [JobReport(job_id="x", epoch=1, signs=1)]
    report(world, "a@box", jobs=jobs)
    report(world, "b@box", draining=True, limits_memory_by=None, runs_images_by="docker 28.2.2")
    result = stado("hosts")
    header, first, second = result.stdout.splitlines()
    assert header.startswith("AGENT  STATE     CORES  MEMORY GiB  DISK GiB  JOBS  SEEN  VERSION")
    cells = first.split()
    assert cells[:6] == ["a@box", "working", "6.5/8", "60.0/64.0", "1,234", "1"]
    assert first.endswith("limits memory by watchdog; contains by cgroup-v2")
    assert second.endswith("  contains by cgroup-v2; runs images by docker 28.2.2")
    assert "1 host at work, 1 draining; 6.5 cores free, as last reported" in result.stderr


def test_what_all_hosts_have_in_common_is_said_once(stado: Program, world: World) -> None:
    report(world, "a@box")
    report(world, "b@box")
    result = stado("hosts")
    assert "watchdog" not in result.stdout
    assert "each limits memory by watchdog; contains by cgroup-v2" in result.stderr


def test_a_hindered_host_says_what_hinders_it_and_is_not_free(stado: Program, world: World) -> None:
    """A78"""
    report(world, "a@box", hindrance=disk_full(world))
    result = stado("hosts")
    assert result.stdout.splitlines()[1].split()[1] == "hindered"
    assert re.search(rf"disk full for 3m 1\ds: {DETAIL}", result.stdout)
    assert "0 hosts at work, 1 hindered; 0 cores free" in result.stderr
    (host,) = stado.json("hosts")["hosts"]
    assert host["hindrance"]["code"] == "disk_full"
    assert host["max_run_seconds"] is None
    assert (host["limits_memory_by"], host["contains_by"]) == ("watchdog", "cgroup-v2")


def test_a_host_that_is_off_is_stale_in_hosts_and_in_status(stado: Program, world: World) -> None:
    """A34: late by three reports, and not counted as free."""
    stado.ok("submit", "--run-id", "x", "run")
    report(world, "off@box", age_seconds=5 * 3600)
    shown = stado("hosts")
    assert shown.stdout.splitlines()[1].split()[1] == "stale"
    assert "not heard for 5h" in shown.stdout
    assert "no host is at work (1 is stale)" in shown.stderr
    assert "no host is at work (1 is stale)" in stado("status").stderr
    assert stado.json("status")["hosts"] == {"stale": 1}
    report(world, "on@box")
    assert "1 host at work, 1 stale: `stado hosts`" in stado("status").stderr


@pytest.mark.parametrize(("age_seconds", "state"), [(2 * 3600, "working"), (5 * 3600, "stale")])
def test_an_agent_that_is_not_heard_is_told_with_the_jobs_under_its_name(
    stado: Program, world: World, age_seconds: float, state: str
) -> None:
    """A34: by the running records; its own report may be older than the job."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    world.claim(job_id)
    report(world, "local@box", age_seconds=age_seconds)
    report(world, "on@box")
    rows = [row.split() for row in stado.ok("hosts").splitlines()[1:]]
    silent = next(row for row in rows if row[0] == "local@box")
    assert (silent[1], silent[5]) == (state, "1")
    told = stado.ok("hosts")
    assert re.search(r"not heard for [25]h", told)
    assert f"1 job is running under its name: {job_id}" in told
    working = {
        "working": "2 hosts at work (1 not heard lately)",
        "stale": "1 host at work, 1 stale",
    }
    assert working[state] in stado("status").stderr
    hosts = {host["worker"]: host["held"] for host in stado.json("hosts")["hosts"]}
    assert hosts == {"local@box": [job_id], "on@box": None}


def test_what_silent_agents_hold_is_read_once_and_only_where_there_are_any(world: World) -> None:
    """A34"""
    store = CountingStore(world.repo.store, world.repo.tasks)
    repo = Repository(
        store,
        world.repo.deployment,
        clock=world.repo.clock,
        entropy=world.repo.entropy,
        tasks=world.repo.tasks,
    )
    request = make_request(["run"] * 3, Spec(command=""), batch=True)
    for job_id in submit(world.repo, run_id="x", request=request, submitter="ada").job_ids:
        world.claim(job_id)
    report(world, "local@box")
    holdings = Holdings(repo)
    before = store.snapshot()
    assert holdings.look(agents(world.repo)) == {}
    assert store.since(before).lists == 0
    report(world, "local@box", age_seconds=2 * 3600)
    sights = agents(world.repo)
    looks = [holdings.look(sights) for _ in range(2)]
    made = store.since(before)
    assert [len(held["local@box"]) for held in looks] == [3, 3]
    assert (made.lists, made.reads) == (2, 3)


def test_a_disk_that_has_little_left_is_not_said_to_have_nothing(
    stado: Program, world: World
) -> None:
    """A78"""
    report(world, "a@box", disk_free_gb=0.0625)
    assert stado.ok("hosts").splitlines()[1].split()[4] == "0.06"


def test_a_report_that_cannot_be_read_is_counted(stado: Program, world: World) -> None:
    report(world, "a@box")
    (world.path / keys.capacity("bad@box")).write_bytes(b"\xff")
    result = stado("hosts")
    assert len(result.stdout.splitlines()) == 2
    assert "1 report cannot be read" in result.stderr
    assert "1 report cannot be read" in stado("status").stderr
    assert stado.json("hosts")["unreadable"] == [keys.capacity("bad@box")]


def test_a_list_that_may_lack_hosts_says_so(stado: Program, world: World) -> None:
    for number in range(1000):
        report(world, f"a{number}@box")
    assert "1,000 reports were read: there may be more" in stado("hosts").stderr
    assert stado.json("hosts")["more"] is True
    world.repo.store.delete(keys.capacity("a7@box"), None)
    assert "there may be more" not in stado("hosts").stderr
    assert stado.json("hosts")["more"] is False


def test_a_host_cannot_drive_the_terminal(stado: Program, world: World) -> None:
    hindrance = Hindrance(code="x\x1b[2J", detail="y\x07\nz", since=world.repo.now())
    report(world, "a@box", host="\x1b]0;owned\x07", version="\x1b[31m", hindrance=hindrance)
    result = stado("hosts")
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(
    environment: dict[str, str], world: World, columns: int
) -> None:
    name = "gpu-7.cluster.example.org"
    report(world, name, host=name, contains_by="process-tree")
    report(world, "b@box", hindrance=disk_full(world))
    terminal = Terminal("hosts", environment=environment, columns=columns)
    assert terminal.end() == 0
    assert max(map(len, terminal.text.splitlines())) <= columns
    assert "    disk full for 3m" in terminal.text
    (row,) = [line for line in terminal.text.splitlines() if line.startswith(name)]
    assert row.endswith("contains by process-tree") == (columns == 140)
    assert "contains by process-tree" in terminal.text


def test_watching_shows_what_comes_and_gives_the_cursor_back(
    environment: dict[str, str], world: World
) -> None:
    report(world, "a@box")
    terminal = Terminal("hosts", "--watch", environment=environment)
    terminal.wait_for("a@box", times=2)
    report(world, "later@box")
    terminal.wait_for("later@box")
    assert terminal.raw.count("\x1b[2J") == 1
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")
    assert terminal.text.rstrip().endswith("stado: no longer watching")


@pytest.mark.parametrize("command", ["hosts", "status"])
def test_watching_without_a_terminal_is_refused(stado: Program, world: World, command: str) -> None:
    assert "stdout is none" in stado.refused(command, "--watch")
    assert "leave --json out" in stado.refused(command, "--watch", "--json")


def test_a_watch_that_is_stopped_gives_the_cursor_back_and_goes_on_with_a_fresh_screen(
    environment: dict[str, str], world: World
) -> None:
    """Ctrl-Z, and then `fg`."""
    report(world, "a@box")
    terminal = Terminal("hosts", "--watch", environment=environment)
    terminal.wait_for("a@box", times=2)
    terminal.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    seen = terminal.text.count("a@box")
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for("a@box", times=seen + 2)
    shown, hidden = "\x1b[?25h", "\x1b[?25l"
    assert terminal.raw.index(shown) < terminal.raw.rindex(hidden)
    assert terminal.raw.count("\x1b[2J") == 2
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130


def test_watching_is_refused_on_a_terminal_that_cannot_be_drawn_on(
    environment: dict[str, str], world: World
) -> None:
    terminal = Terminal("hosts", "--watch", environment={**environment, "TERM": "dumb"})
    assert terminal.end() == 2
    assert "TERM is dumb" in terminal.text
    assert "\x1b" not in terminal.raw


# --- what operators say -------------------------------------------------------------------------


def orders_of(world: World, consumer: str) -> HostOrders:
    found = find_orders(world.repo, consumer)
    assert found is not None
    return found


def test_a_host_is_cordoned_and_opened_again_by_the_name_of_its_agent_or_its_own(
    stado: Program, world: World
) -> None:
    """A34"""
    report(world, "a@lab", host="lab")
    told = stado("hosts", "cordon", "a@lab", "--reason", "new driver")
    assert told.stderr == "a@lab is cordoned: it takes no more jobs (within 15 s)\n"
    closing = orders_of(world, "a@lab").closing
    assert closing is not None
    assert (closing.order, closing.by, closing.reason) == (HostOrder.CORDON, "ada", "new driver")
    told = stado("hosts", "drain", "lab", "--deadline", "30m")
    assert "a@lab is to drain: it takes no more jobs, and puts back what still runs in 30m" in (
        told.stderr
    )
    closing = orders_of(world, "a@lab").closing
    assert closing is not None
    assert (closing.order, closing.reason) == (HostOrder.DRAIN, None)
    assert closing.deadline_at == closing.at + timedelta(minutes=30)
    assert stado.json("hosts", "uncordon", "lab")["orders"]["closing"] is None
    assert orders_of(world, "a@lab").closing is None


def test_labels_are_said_and_taken_back(stado: Program, world: World) -> None:
    report(world, "a@lab")
    told = stado("hosts", "label", "a@lab", "zone=a", "rack=7")
    assert "a@lab has zone=a, rack=7 over the labels of its agent" in told.stderr
    assert stado.json("hosts", "label", "a@lab", "rack-")["orders"]["labels"] == {"zone": "a"}
    assert "must be KEY=VALUE" in stado.refused("hosts", "label", "a@lab", "zone")


def test_a_host_that_is_not_there_is_answered_with_the_near_ones(
    stado: Program, world: World
) -> None:
    """Nobody shall believe that a host is closed because he mistyped it."""
    assert "no host is there yet" in stado.refused("hosts", "cordon", "a@lab")
    report(world, "local@lab-7", host="lab")
    report(world, "local@lab-8", host="lab")
    assert "did you mean local@lab-7" in stado.refused("hosts", "cordon", "local@lab7")
    assert "2 agents are on lab" in stado.refused("hosts", "cordon", "lab")
    assert find_orders(world.repo, "local@lab7") is None
    stado.ok("hosts", "cordon", "lab-7")
    assert orders_of(world, "local@lab-7").closing is not None


@pytest.mark.parametrize(
    ("code", "word"), [("cordoned", "cordoned"), ("quarantined", "quarantined")]
)
def test_a_closed_host_is_told_with_its_word_and_is_not_free(
    stado: Program, world: World, code: str, word: str
) -> None:
    """A33, A34: in the table, in `status`, in `doctor`, and in why a job waits."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    since = world.repo.now() - timedelta(seconds=192)
    hindrance = Hindrance(code=code, detail="ada has closed it: `stado hosts x`", since=since)
    report(world, "a@box", hindrance=hindrance)
    shown = stado("hosts")
    assert shown.stdout.splitlines()[1].split()[1] == word
    assert f"{word} for 3m 1" in shown.stdout
    assert f"0 hosts at work, 1 {word}; 0 cores free" in shown.stderr
    assert stado.json("hosts")["counts"] == {word: 1}
    assert f"0 hosts at work, 1 {word}: `stado hosts`" in stado("status").stderr
    assert f"1 host: {word}" in stado("job", "why", job_id).stdout
    assert "-> `stado hosts a@box` tells more" in stado("doctor").stdout


def test_one_host_tells_all_that_is_known_of_it(stado: Program, world: World) -> None:
    now = world.repo.now()
    end = JobEnd(job_id="a" * 16, verdict="failed", reason="job_failed", ran_seconds=61, at=now)
    report(
        world,
        "a@box",
        labels=["zone=a"],
        last_claim=JobClaim(job_id="b" * 16, at=now - timedelta(seconds=61)),
        recent_ends=[end],
        jobs=[JobReport(job_id="b" * 16, epoch=1, signs=1, began_at=now - timedelta(seconds=61))],
    )
    lines = stado.ok("hosts", "box").splitlines()
    assert lines[0].startswith("agent       a@box on box, version 0.1.0, heard ")
    assert lines[1:4] == [
        "state       working",
        "takes jobs  yes: what fits into what is free",
        "free        6.5 of 8 cores, 60.0 of 64.0 GiB of memory, 1,234 GiB of disk",
    ]
    assert re.fullmatch(r"jobs        b{16} for 1m 0?[1-9]s", lines[4])
    assert lines[5] == "labels      zone=a"
    assert re.fullmatch(r"last claim  b{16}, .*Z \(1m 0?[1-9]s ago\)", lines[6])
    assert lines[7] == "last ends   aaaaaaaaaaaaaaaa failed (job_failed) after 1m 1s"
    told = stado.json("hosts", "a@box")
    assert (told["why"], told["orders"]) == (None, None)
    assert told["host"]["recent_ends"][0]["reason"] == "job_failed"


def test_why_a_host_takes_nothing_is_one_sentence(stado: Program, world: World) -> None:
    """A34"""
    report(world, "a@box", stopped=True)
    assert "its agent has stopped" in stado.json("hosts", "a@box")["why"]
    report(world, "a@box", age_seconds=5 * 3600)
    assert "it has not been heard for 5h" in stado.json("hosts", "a@box")["why"]
    report(world, "a@box", cpu_free=0)
    assert stado.json("hosts", "a@box")["why"] == "all its cores are given to jobs"
    report(world, "a@box", closed=True)
    assert stado.json("hosts", "a@box")["why"] == "a job has it for itself"
    report(world, "a@box", keeps_room_for="b" * 16)
    assert f"keeps room  for job {'b' * 16}" in stado.ok("hosts", "a@box")
    report(world, "a@box", draining=True)
    assert "its agent was told to stop" in stado.json("hosts", "a@box")["why"]
    report(world, "a@box")
    stado.ok("hosts", "drain", "a@box")
    assert "its agent heeds that with its next report" in stado.json("hosts", "a@box")["why"]


def test_only_a_host_that_is_gone_and_holds_nothing_is_forgotten(
    stado: Program, world: World
) -> None:
    report(world, "local@box")
    stado.ok("hosts", "cordon", "local@box")
    assert "local@box is working: stop its agent" in stado.refused("hosts", "rm", "local@box")
    job_id = stado.ok("submit", "--run-id", "x", "run")
    claimed = world.claim(job_id)
    report(world, "local@box", stopped=True)
    assert f"{job_id} is still running under the name of local@box" in stado.refused(
        "hosts", "rm", "local@box"
    )
    world.end(claimed, Verdict.COMPLETED)
    stado.ok("hosts", "rm", "local@box")
    assert stado.json("hosts")["hosts"] == []
    assert find_orders(world.repo, "local@box") is None
