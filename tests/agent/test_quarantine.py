"""A host on which all fails at once, beside others: it does not draw the queue through itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import JobEnd, JobReport
from stado.core.states import State
from stado.jobs.host_orders import release_host
from tests.agent.fakes import Script
from tests.agent.test_agent import NAME, Host
from tests.jobs.world import BOB

BEAT = 20
JOBS = 30


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def prepare(host: Host) -> None:
    """What commands do there; and its agent has reported."""
    host.processes.scripts["bad"] = Script(seconds=1, exit_code=1)
    host.processes.scripts["good"] = Script(seconds=40)
    host.agent.step()


class Neighbour:
    """Another agent, by its reports."""

    def __init__(self, host: Host, name: str = BOB.consumer) -> None:
        prepare(host)
        self._host = host
        self._name = name
        self.ends: list[JobEnd] = []
        self.jobs: list[JobReport] = []

    def ended(self, job_id: str, *, well: bool, user: str = "ada") -> None:
        end = JobEnd(
            job_id=job_id,
            user=user,
            verdict="completed" if well else "failed",
            reason=None if well else "job_failed",
            ran_seconds=1.0,
            at=self._host.world.repo.now() + timedelta(seconds=1),
        )
        self.ends = [*self.ends, end][-8:]
        self.report()

    def report(self, **changes: object) -> None:
        mine = self._host.capacity()
        other = mine.evolve(
            consumer=self._name,
            recent_ends=self.ends,
            jobs=self.jobs,
            at=self._host.world.repo.now(),
            hindrance=None,
        ).evolve(**changes)
        self._host.world.store.put(keys.capacity(self._name), other.encode())


def failed(host: Host) -> int:
    return len(host.world.names(keys.prefix(State.FAILED)))


def become_suspect(host: Host) -> list[str]:
    """A batch, of which all that it takes fail at once."""
    jobs = host.submit(*["bad"] * JOBS)
    host.step_for(BEAT)
    assert host.hindrance == "suspect"
    assert failed(host) <= 4  # four cores: those were begun together
    return jobs


def test_a_host_on_which_all_fails_is_quarantined_where_others_do_well(host: Host) -> None:
    """A33: it says which jobs, how they failed, and how it is lifted."""
    neighbour = Neighbour(host)
    neighbour.report()
    jobs = become_suspect(host)
    touched = failed(host)
    neighbour.ended(jobs[20], well=True)
    host.step_for(BEAT)
    found = host.capacity().hindrance
    assert found is not None
    assert found.code == "quarantined"
    assert "failed here within 30 s: " in found.detail
    assert jobs[0] in found.detail
    assert "(job_failed), and other hosts run such jobs: mend it" in found.detail
    assert f"`stado hosts release {NAME}`" in found.detail
    host.step_for(1000)
    assert failed(host) == touched


def test_one_core_has_three_jobs_at_most_before_it_is_suspect(host: Host) -> None:
    """A33"""
    Neighbour(host).report()
    host.submit(*["bad"] * JOBS, cpu=4)
    host.step_for(2 * BEAT)
    assert host.hindrance == "suspect"
    assert failed(host) == 3


def test_after_the_first_failure_no_more_are_begun_than_are_missing_to_three(host: Host) -> None:
    """A33: the others may fail as it did."""
    prepare(host)
    host.processes.scripts["slow"] = Script(seconds=100)
    host.submit("bad", cpu=4)
    host.step_until(lambda: failed(host) == 1)
    host.submit(*["slow"] * 4)
    host.step_for(10)
    assert host.running() == 2
    host.step_for(40)
    assert host.running() == 4


def test_a_batch_of_broken_jobs_closes_no_host(host: Host) -> None:
    """A33: they fail elsewhere, too; from then on they are taken as they come."""
    neighbour = Neighbour(host)
    neighbour.report()
    jobs = become_suspect(host)
    neighbour.ended(jobs[20], well=False)
    host.step_for(100)
    assert failed(host) == JOBS
    assert host.hindrance is None


def test_a_host_that_is_alone_goes_on(host: Host) -> None:
    """A33: there is nobody to compare with, and nobody else to do the work."""
    prepare(host)
    begun = host.clock.monotonic()
    host.submit(*["bad"] * 20)
    host.step_until(lambda: failed(host) == 20)
    assert host.clock.monotonic() - begun < 100


def test_a_neighbour_who_shows_nothing_is_waited_for_two_minutes(host: Host) -> None:
    neighbour = Neighbour(host)
    neighbour.report()
    become_suspect(host)
    begun, touched = host.clock.monotonic(), failed(host)
    while failed(host) == touched:
        host.agent.step()
        if not int(host.clock.monotonic()) % 10:
            neighbour.report()
    assert 100 < host.clock.monotonic() - begun < 200


def test_a_success_between_is_a_new_beginning(host: Host) -> None:
    """A33: three in a row, not three in all."""
    Neighbour(host).report()
    host.processes.scripts["fine"] = Script(seconds=1)
    for command in ("bad", "bad", "fine", "bad", "bad"):
        (job,) = host.submit(command)
        host.step_until_at_rest(job)
    host.step_for(BEAT)
    assert host.hindrance is None


def test_a_job_that_ends_well_meanwhile_speaks_for_a_suspect(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was begun before the others, and shows only now how it went."""
    caplog.set_level("INFO")
    neighbour = Neighbour(host)
    neighbour.report()
    host.processes.scripts["fine"] = Script(seconds=2 * BEAT)
    (fine,) = host.submit("fine")
    host.step_for(1)
    become_suspect(host)
    neighbour.report()
    host.step_until_at_rest(fine)
    neighbour.report()
    touched = failed(host)
    host.step_for(BEAT)
    assert "event=not_suspect why='a job that ended since ran well'" in caplog.text
    assert failed(host) > touched


def test_a_quarantine_outlives_its_agent_and_ends_when_it_is_released(host: Host) -> None:
    """A33: nothing but a release lifts it, and one that is older does not."""
    neighbour = Neighbour(host)
    neighbour.report()
    release_host(host.world.repo, NAME, by="ada")
    jobs = become_suspect(host)
    neighbour.ended(jobs[20], well=True)
    host.step_for(BEAT)
    assert host.hindrance == "quarantined"
    since = host.capacity().hindrance
    host.agent = host.new_agent()
    host.step_for(100)
    assert host.capacity().hindrance == since
    touched = failed(host)
    host.processes.scripts["bad"] = Script(seconds=1)
    release_host(host.world.repo, NAME, by="ada")
    host.step_until(lambda: host.at_rest(jobs[-1]))
    assert failed(host) == touched
    host.agent = host.new_agent()
    host.step_for(BEAT)
    assert host.hindrance is None


@pytest.mark.parametrize("content", [b"nonsense", b"[]", b'{"since": "2026-01-01"}', b"\xff"])
def test_a_note_of_a_quarantine_that_says_nothing_stops_nobody(host: Host, content: bytes) -> None:
    (host.folder.root / "quarantine.json").write_bytes(content)
    host.agent = host.new_agent()
    host.script(1)
    (job,) = host.submit("true")
    host.step_until_at_rest(job)


def test_supervisors_that_die_at_once_make_their_host_suspect(host: Host) -> None:
    """A33"""
    Neighbour(host).report()
    host.submit(*["good"] * 3)
    host.step_to_start(3)
    for supervisor in host.living():
        supervisor.kill()
    host.step_until(lambda: host.hindrance == "suspect")
