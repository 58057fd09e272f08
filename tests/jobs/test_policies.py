"""The policy of a train job: sealed before anybody sees the job at rest, and never changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.documents import canonical
from stado.core.records import Ending, PolicySeal
from stado.core.spec import Spec, make_request
from stado.core.states import JobType, Kind, Reason, State, Verdict
from stado.errors import Exists, Refused, StoreError, Unreadable
from stado.jobs import checkpoints, saving
from stado.jobs.changes import cancel, rerun
from stado.jobs.endings import give_verdict, settle
from stado.jobs.life import seal_epoch
from stado.jobs.policies import (
    download_save,
    find_policy,
    find_save,
    newest_policies,
    parse_ref,
    pin_start,
)
from stado.jobs.policy_exports import MANIFEST_NAME, export_save
from stado.jobs.policy_seals import find_seal
from stado.jobs.reaping import Reaper
from stado.jobs.saving import Past, Save
from stado.jobs.sidecars import write_sidecar
from stado.pinning import Unpinned, pin
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Actor
from tests.jobs.world import World, end, give_back, heal

TRAIN = Spec(command="", type=JobType.TRAIN)


class Folder:
    """What a job saves, one save after another."""

    def __init__(self, world: World, path: Path, job: str, *, epoch: int = 1) -> None:
        self.world, self.path, self.job, self.epoch = world, path, job, epoch
        self.path.mkdir(parents=True)
        self.past = Past()
        self.count = 0

    def save(self, value: float | None = None) -> Save:
        self.count += 1
        (self.path / "model").write_text(f"{self.epoch}.{self.count}")
        if value is not None:
            write_sidecar(self.path, step=self.count, metric="reward", value=value)
        saved = saving.save(
            self.world.repo,
            job_id=self.job,
            epoch=self.epoch,
            sequence=self.count,
            folder=self.path,
            past=self.past,
        )
        assert saved is not None
        best = checkpoints.best_as_of(saved.checkpoint, saved.ref)
        self.past = Past([*self.past.kept, saved], saved.states, best)
        return saved


def sealed(world: World, job: str) -> PolicySeal:
    seal = find_seal(world.repo, job)
    assert seal is not None
    return seal


def numbers(seal: PolicySeal) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """(epoch, sequence) of best and latest."""
    best, latest = (
        keys.parse_checkpoint_manifest(save.manifest) if save is not None else None
        for save in (seal.best, seal.latest)
    )
    return best, latest


# --- the seal -------------------------------------------------------------------------------


def test_a_train_job_leaves_its_best_and_its_latest(world: World, tmp_path: Path) -> None:
    """R107: both are there before the job is seen at rest."""
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    folder = Folder(world, tmp_path / "it", job)
    for value in (1.0, 5.0, 2.0):
        folder.save(value)
    world.end(claimed)
    assert numbers(sealed(world, job)) == ((1, 2), (1, 3))
    assert sealed(world, job).best == folder.past.best


def test_no_prefix_shows_a_train_job_at_rest_before_its_policy_stands(
    world: World, tmp_path: Path
) -> None:
    """R107: at each step of each way to come to rest."""
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    Folder(world, tmp_path / "it", job).save()
    now = world.repo.now()
    ending = Ending(
        verdict=Verdict.COMPLETED, exit_code=0, started_at=now, ended_at=now, by="alice"
    )
    give_verdict(world.repo, claimed.record, ending)
    slow = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    while slow.step():
        at_rest = any(state.at_rest for state in world.states(job))
        assert not at_rest or find_seal(world.repo, job) is not None
    assert sealed(world, job).latest is not None


def test_a_policy_costs_a_listing_a_read_and_a_write(world: World, tmp_path: Path) -> None:
    """PROTOCOL.md, "Requests": beside what the end of any job costs."""
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    Folder(world, tmp_path / "it", job).save(1.0)
    counting = CountingStore(world.store, world.tasks)
    end(world.repo_over(counting), claimed)
    counts = counting.snapshot()
    assert (counts.writes, counts.reads, counts.deletes, counts.lists) == (3, 2, 1, 1)


def test_a_job_of_another_type_makes_none_and_pays_for_none(world: World) -> None:
    for kind in JobType:
        if kind is JobType.TRAIN:
            continue
        job = world.submit(spec=Spec(command="", type=kind))
        claimed = world.start()
        counting = CountingStore(world.store, world.tasks)
        end(world.repo_over(counting), claimed)
        counts = counting.snapshot()
        assert (counts.writes, counts.reads, counts.deletes, counts.lists) == (2, 1, 1, 0)
        assert find_seal(world.repo, job) is None


def _saves_one(world: World, folder: Path, job: str) -> None:
    Folder(world, folder / job, job).save(1.0)


def _by_reaper(world: World, folder: Path, job: str) -> None:
    world.start()
    _saves_one(world, folder, job)
    world.lose(Reaper(world.repo, by="coordinator"))


def _by_canceller_of_a_silent_worker(world: World, folder: Path, job: str) -> None:
    world.start()
    _saves_one(world, folder, job)
    cancel(world.repo, job, by="ann")
    world.lose(Reaper(world.repo, by="coordinator"))


def _by_intent_of_a_later_epoch(world: World, folder: Path, job: str) -> None:
    world.start()
    _saves_one(world, folder, job)
    give_back(world, job)
    cancel(world.repo, job, by="ann")


@pytest.mark.parametrize(
    ("way", "state", "losses"),
    [
        (_by_reaper, State.FAILED, 0),
        (_by_canceller_of_a_silent_worker, State.CANCELLED, 3),
        (_by_intent_of_a_later_epoch, State.CANCELLED, 3),
    ],
)
def test_whoever_gives_the_verdict_seals(
    world: World,
    tmp_path: Path,
    way: Callable[[World, Path, str], None],
    state: State,
    losses: int,
) -> None:
    """R96, R103: what was saved stays, and others can start from it."""
    job = world.submit(spec=TRAIN.evolve(max_lease_losses=losses))
    way(world, tmp_path, job)
    assert world.states(job) == {state}
    assert numbers(sealed(world, job)) == ((1, 1), (1, 1))
    best = sealed(world, job).best
    assert best is not None
    assert pin_start(world.repo, f"policy_{job}:best").sha256 == best.sha256


def test_a_train_job_that_never_ran_has_an_empty_policy(world: World) -> None:
    job = world.submit(spec=TRAIN)
    cancel(world.repo, job, by="ann")
    assert numbers(sealed(world, job)) == (None, None)


def test_what_comes_after_the_seal_changes_nothing(world: World, tmp_path: Path) -> None:
    """R108: a holder that was fenced saves on, and settlers come again."""
    job = world.submit(spec=TRAIN.evolve(max_lease_losses=0))
    world.start()
    folder = Folder(world, tmp_path / "it", job)
    folder.save(1.0)
    world.lose(Reaper(world.repo, by="coordinator"))
    before = world.store.get(keys.policy(job))
    folder.save(9.0)
    for _ in range(2):
        settle(world.repo, job, 1)
    assert world.store.get(keys.policy(job)) == before
    with pytest.raises(Exists):
        world.store.create(keys.policy(job), b"another")


def test_of_two_settlers_one_seals(world: World, tmp_path: Path) -> None:
    """A save lands between their listings: what the first one wrote counts, for both."""
    job = world.submit(spec=TRAIN.evolve(max_lease_losses=0))
    world.start()
    folder = Folder(world, tmp_path / "it", job)
    folder.save(1.0)
    record = world.find(job).record
    seal_epoch(world.repo, record, world.repo.find_heartbeat(job), by="coordinator")
    now = world.repo.now()
    ending = Ending(
        verdict=Verdict.FAILED,
        reason=Reason.LEASE_EXPIRED_MAX_ATTEMPTS,
        started_at=now,
        ended_at=now,
        by="coordinator",
    )
    give_verdict(world.repo, record, ending)
    slow = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    while slow.pending_key != keys.policy(job):
        assert slow.step()
    folder.save(9.0)
    settle(world.repo, job, 1)
    slow.finish()
    assert slow.error is None
    assert numbers(sealed(world, job)) == ((1, 2), (1, 2))


def test_a_manifest_that_cannot_be_read_gives_way_to_the_one_before(
    world: World, tmp_path: Path
) -> None:
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    folder = Folder(world, tmp_path / "it", job)
    folder.save(1.0)
    folder.save()
    world.store.put(keys.checkpoint_manifest(job, 1, 2), b"{ cut")
    world.end(claimed)
    assert numbers(sealed(world, job)) == ((1, 1), (1, 1))


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_ANSWER, FaultKind.DENIED])
@pytest.mark.parametrize("skip", range(5))
def test_a_settler_that_fails_on_the_way_leaves_no_unsealed_job_at_rest(
    world: World, tmp_path: Path, kind: FaultKind, skip: int
) -> None:
    """Each request of it, and whoever comes next finishes."""
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    Folder(world, tmp_path / "it", job).save(1.0)
    fault = ScriptedFaults(*(Fault(kind, op, skip=skip) for op in Operation))
    repo = world.repo
    world.repo = world.repo_over(FaultyStore(world.store, world.clock, fault))
    with contextlib.suppress(StoreError):
        world.end(claimed)
    world.repo = repo
    at_rest = any(state.at_rest for state in world.states(job))
    assert not at_rest or find_seal(repo, job) is not None
    heal(world, job)
    assert numbers(sealed(world, job))[1] is not None


# --- what people type -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("zrkkcmezlzooeqjq:best", "checkpoint_ref_is_job"),
        ("zrkkcmezlzooeqjq", "checkpoint_ref_is_job"),
        ("last:best", "checkpoint_ref_is_job"),
        ("", "checkpoint_ref_is_job"),
        ("policy_zrkkcmezlzooeqjq", "checkpoint_ref_invalid"),
        ("policy_zrkkcmezlzooeqjq:", "checkpoint_ref_invalid"),
        ("policy_zrkkcmezlzooeqjq:newest", "checkpoint_ref_invalid"),
    ],
)
def test_a_reference_names_a_policy_and_which_checkpoint(text: str, code: str) -> None:
    """R113: a job's id is refused by name."""
    with pytest.raises(Refused) as refused:
        parse_ref(text)
    assert refused.value.code == code


def test_a_reference_to_a_job_says_how_the_policy_is_called() -> None:
    """R113"""
    with pytest.raises(Refused, match="policy_zrkkcmezlzooeqjq:best"):
        parse_ref("zrkkcmezlzooeqjq:latest")
    assert parse_ref("  POLICY_abc:Best ").kind is Kind.BEST


def test_the_policy_of_a_job_that_runs_is_not_sealed_yet(world: World, tmp_path: Path) -> None:
    job = world.submit(spec=TRAIN)
    for what in ("queued", "running"):
        with pytest.raises(Refused, match=what) as refused:
            find_save(world.repo, f"policy_{job}:best")
        assert refused.value.code == "policy_not_sealed"
        if what == "queued":
            world.start()
    with pytest.raises(Refused) as refused:
        find_policy(world.repo, job[2:9])
    assert refused.value.code == "policy_not_sealed"


def test_there_are_policies_of_train_jobs_only(world: World) -> None:
    job = world.submit()
    for name in (job, job[3:12], "a" * 16, "zzzz", "x"):
        with pytest.raises(Refused) as refused:
            find_policy(world.repo, name)
        assert refused.value.code == "policy_not_found"


def test_a_part_of_an_id_is_enough_unless_it_means_several(world: World, tmp_path: Path) -> None:
    jobs = []
    for _ in range(2):
        jobs.append(world.submit(spec=TRAIN))
        claimed = world.start()
        _saves_one(world, tmp_path, jobs[-1])
        world.end(claimed)
        world.clock.sleep(1)
    assert find_policy(world.repo, jobs[0][-6:]).job_id == jobs[0]
    with pytest.raises(Refused, match="2 of them") as refused:
        find_policy(world.repo, jobs[0][:5])
    assert refused.value.code == "policy_ambiguous"


def test_a_policy_without_a_metric_has_a_latest_only(world: World, tmp_path: Path) -> None:
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    Folder(world, tmp_path / "it", job).save()
    world.end(claimed)
    assert find_save(world.repo, f"policy_{job}:latest")[1] is Kind.LATEST
    with pytest.raises(Refused, match=f"policy_{job}:latest is there") as refused:
        find_save(world.repo, f"policy_{job}:best")
    assert refused.value.code == "checkpoint_unavailable"


def test_policies_are_listed_newest_first(world: World, tmp_path: Path) -> None:
    """R109"""
    jobs = []
    for _ in range(4):
        jobs.insert(0, world.submit(spec=TRAIN))
        claimed = world.start()
        _saves_one(world, tmp_path, jobs[0])
        world.end(claimed)
        world.clock.sleep(1)
    world.store.put(keys.policy(jobs[1]), b"nonsense")
    world.store.put(f"{keys.POLICIES}!junk", b"")
    listing = newest_policies(world.repo, limit=3)
    assert [seal.job_id for seal in listing.seals] == [jobs[0], jobs[2]]
    assert (len(listing.unreadable), listing.more) == (1, True)


# --- pinned ---------------------------------------------------------------------------------


def _trained(world: World, tmp_path: Path) -> str:
    job = world.submit(spec=TRAIN)
    claimed = world.start()
    folder = Folder(world, tmp_path / "trained", job)
    for value in (3.0, 2.0):
        folder.save(value)
    world.end(claimed)
    return job


def test_a_job_is_pinned_to_one_save_for_ever(world: World, tmp_path: Path) -> None:
    """R111: by its key and digest; a rerun starts from the same."""
    job = _trained(world, tmp_path)
    request = world.find(job).record.spec.evolve(command="")
    pinned = pin(
        world.repo,
        make_request(["go on"], request, batch=False),
        Unpinned(start_from_ref=f"policy_{job}:best"),
    )
    start_from = pinned.shared.start_from
    assert start_from is not None
    best = sealed(world, job).best
    assert best is not None
    assert (start_from.manifest, start_from.sha256) == (best.manifest, best.sha256)
    assert start_from.ref == f"policy_{job}:best"
    again = world.submit(spec=pinned.shared)
    repeated = rerun(world.repo, again, run_id=None, submitter="ada").base_id
    assert world.find(repeated).record.spec.start_from == start_from


def test_a_job_that_asks_for_nothing_new_has_the_digest_that_it_had() -> None:
    plain = make_request(["x"], Spec(command=""), batch=False)
    trains = make_request(["x"], TRAIN, batch=False)
    assert plain.digest() != trains.digest()
    stated = {"batch": False, "commands": ["x"], "shared": {}}
    assert plain.digest() == hashlib.sha256(canonical(stated)).hexdigest()


# --- brought here ---------------------------------------------------------------------------


def test_a_checkpoint_of_a_policy_is_downloaded_and_checked(world: World, tmp_path: Path) -> None:
    """R110"""
    job = _trained(world, tmp_path)
    seal, _, save = find_save(world.repo, f"policy_{job}:best")
    download_save(world.repo, seal, save, tmp_path / "here")
    assert (tmp_path / "here" / "model").read_text() == "1.1"
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        "model",
        "stado-checkpoint.json",
    ]
    with pytest.raises(Refused) as refused:
        download_save(world.repo, seal, save, tmp_path / "here")
    assert refused.value.code == "checkpoint_folder_not_empty"


def _lose_part(world: World, save_key: str) -> None:
    world.store.delete(save_key.replace("manifest.json", "000000"), None)


def _damage_part(world: World, save_key: str) -> None:
    world.store.put(save_key.replace("manifest.json", "000000"), b"forged")


def _lose_manifest(world: World, save_key: str) -> None:
    world.store.delete(save_key, None)


def _forge_manifest(world: World, save_key: str) -> None:
    checkpoint, _ = checkpoints.read_manifest(world.repo, save_key)
    world.store.put(save_key, checkpoint.evolve(meta=None).encode())


@pytest.mark.parametrize("harm", [_lose_part, _damage_part, _lose_manifest, _forge_manifest])
def test_a_checkpoint_that_is_gone_or_damaged_is_told(
    world: World, tmp_path: Path, harm: Callable[[World, str], None]
) -> None:
    job = _trained(world, tmp_path)
    seal, _, save = find_save(world.repo, f"policy_{job}:best")
    harm(world, save.manifest)
    with pytest.raises(Refused, match="gone or damaged") as refused:
        download_save(world.repo, seal, save, tmp_path / "here")
    assert refused.value.code == "checkpoint_unavailable"
    assert not (tmp_path / "here").exists()


def test_an_export_tells_what_it_is(world: World, tmp_path: Path) -> None:
    """R112: as a folder, or as a tar file that holds nothing of this machine."""
    job = _trained(world, tmp_path)
    seal, kind, save = find_save(world.repo, f"policy_{job}:best")
    export_save(world.repo, seal, kind, save, tmp_path / "folder")
    manifest = json.loads((tmp_path / "folder" / MANIFEST_NAME).read_bytes())
    assert (manifest["policy_id"], manifest["kind"], manifest["step"]) == (
        f"policy_{job}",
        "best",
        1,
    )
    assert (manifest["metric"], manifest["value"]) == ("reward", 3.0)
    assert [file["path"] for file in manifest["files"]] == ["model", "stado-checkpoint.json"]
    for name in ("a.tar", "b.tar", "c.tar.gz"):
        export_save(world.repo, seal, kind, save, tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "c.tar.gz") as archive:
        assert sorted(archive.getnames()) == [
            f"policy_{job}",
            f"policy_{job}/model",
            f"policy_{job}/stado-checkpoint.json",
            f"policy_{job}/{MANIFEST_NAME}",
        ]
    with pytest.raises(Refused) as refused:
        export_save(world.repo, seal, kind, save, tmp_path / "a.tar")
    assert refused.value.code == "export_exists"


# --- a forged policy ------------------------------------------------------------------------


def test_a_policy_names_saves_of_its_own_job_and_nothing_else(world: World, tmp_path: Path) -> None:
    job = _trained(world, tmp_path)
    other = world.submit()
    seal = sealed(world, job)
    assert seal.latest is not None
    for key in (
        keys.record(State.QUEUED, other),
        keys.checkpoint_manifest(other, 1, 1),
        keys.checkpoint_part(job, 1, 1, 0),
    ):
        forged = seal.evolve(latest=seal.latest.evolve(manifest=key))
        world.store.put(keys.policy(job), forged.encode())
        with pytest.raises(Unreadable, match="not its own"):
            find_policy(world.repo, job)
