"""Policies of train jobs, against settlers and holders that come late."""

from __future__ import annotations

from pathlib import Path

from stado.core import keys
from stado.core.records import Checkpoint, Ending, PolicySeal
from stado.core.spec import Spec
from stado.core.states import JobType, Reason, State, Verdict
from stado.jobs.changes import cancel, pause, retry
from stado.jobs.checkpoints import read_manifest, restore
from stado.jobs.deletion import delete
from stado.jobs.endings import give_verdict, settle, settle_own
from stado.jobs.life import seal_epoch
from stado.jobs.policy_seals import find_seal, saves_named
from stado.jobs.saving import Manner
from stado_agent.checkpoint_sync import CheckpointSync
from tests.jobs.actors import Actor
from tests.jobs.world import World

TRAIN = Spec(command="", type=JobType.TRAIN)


class Trainer:
    """A holder that saves at each look. `heard`: whether its beats get through."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.job = world.submit(spec=TRAIN)
        self.claimed = world.start()
        self.heard = True
        self._heard_at = world.clock.monotonic()
        self._folder = folder / self.job
        self._folder.mkdir()
        self._count = 0
        self.sync = CheckpointSync(
            world.repo, self._folder, manner=Manner(part_bytes=4), heard_at=lambda: self._heard_at
        )

    def save(self) -> None:
        self._count += 1
        (self._folder / "model").write_text(f"base {self._count}" + "x" * self._count)
        for _ in range(2):
            self.world.clock.sleep(self.world.deployment.tick_seconds)
            if self.heard:
                self._heard_at = self.world.clock.monotonic()
            self.sync.save_when_due(self.job, 1)

    def ending(self) -> Ending:
        now = self.world.repo.now()
        reason = Reason.LEASE_EXPIRED_MAX_ATTEMPTS
        return Ending(
            verdict=Verdict.FAILED, reason=reason, started_at=now, ended_at=now, by="coordinator"
        )

    def is_declared_dead(self) -> None:
        """For the last time: nobody has settled that yet."""
        record = self.world.find(self.job).record
        last = self.world.repo.find_heartbeat(self.job)
        assert seal_epoch(self.world.repo, record, last, by="coordinator") is not None
        give_verdict(self.world.repo, record, self.ending())

    def policy(self) -> PolicySeal:
        seal = find_seal(self.world.repo, self.job)
        assert seal is not None
        return seal

    def named(self) -> Checkpoint:
        latest = self.policy().latest
        assert latest is not None
        assert self.world.has(latest.manifest)
        return read_manifest(self.world.repo, latest.manifest)[0]


def test_nobody_sees_a_training_at_rest_before_its_policy_stands(
    world: World, tmp_path: Path
) -> None:
    """H25: at each step of a settler, and of the holder itself."""
    for own in (False, True):
        trainer = Trainer(world, tmp_path)
        trainer.save()
        cell, _ = give_verdict(world.repo, trainer.claimed.record, trainer.ending())
        version = trainer.claimed.running_version
        settler = Actor(
            world.store,
            lambda store, own=own, cell=cell, version=version, job=trainer.job: (  # type: ignore[misc]
                settle_own(world.repo_over(store), cell, version)
                if own
                else settle(world.repo_over(store), job, 1)
            ),
        )
        while settler.step():
            at_rest = any(state.at_rest for state in world.states(trainer.job))
            assert not at_rest or find_seal(world.repo, trainer.job) is not None
        assert settler.error is None
        assert trainer.named().sequence == 1


def test_a_holder_that_was_declared_dead_deletes_nothing_that_a_policy_names(
    world: World, tmp_path: Path
) -> None:
    """H26: it is cut off, saves on, and would make room as it always did."""
    trainer = Trainer(world, tmp_path)
    for _ in range(4):
        trainer.save()
    trainer.heard = False
    trainer.is_declared_dead()
    settle(world.repo, trainer.job, 1)
    for _ in range(4):
        trainer.save()
    named = trainer.named()
    assert named.sequence == 4
    for part in (part for file in named.files for part in file.parts):
        assert world.has(part)


def test_a_policy_is_sealed_once(world: World, tmp_path: Path) -> None:
    """H27: two settlers come, and a save of a cut-off holder lands between them."""
    trainer = Trainer(world, tmp_path)
    trainer.save()
    trainer.heard = False
    trainer.is_declared_dead()
    settle(world.repo, trainer.job, 1)
    before = world.store.get(keys.policy(trainer.job))
    trainer.save()
    settle(world.repo, trainer.job, 1)
    assert world.store.get(keys.policy(trainer.job)) == before


def test_a_retry_makes_another_policy_and_leaves_the_first_as_it_was(
    world: World, tmp_path: Path
) -> None:
    """H34: what the first one names is there, however often the retried job saves."""
    trainer = Trainer(world, tmp_path)
    trainer.save()
    cell, _ = give_verdict(world.repo, trainer.claimed.record, trainer.ending())
    settle_own(world.repo, cell, trainer.claimed.running_version)
    first = find_seal(world.repo, trainer.job)
    assert first is not None
    assert first.latest is not None
    retry(world.repo, trainer.job, by="ada")
    record = world.start().record
    assert record.policy_id == f"policy_{trainer.job}.r2"
    again = CheckpointSync(world.repo, tmp_path / "again", manner=Manner(part_bytes=4))
    again.spare(saves_named(world.repo, trainer.job, revisions=1))
    assert again.restore_newest(trainer.job)
    for number in range(4):
        (tmp_path / "again" / "model").write_text(f"other {number}")
        again.save_rest(trainer.job, 2)
        again.sweep_rest()
    assert (
        len([key for key in world.names(keys.checkpoints_folder(trainer.job)) if "manifest" in key])
        == 3
    )
    read_manifest(world.repo, first.latest.manifest)
    pinned = tmp_path / "pinned"
    restore(world.repo, first.latest.manifest, pinned, sha256=first.latest.sha256)
    assert (pinned / "model").read_text() == "base 1x"
    settle(world.repo, trainer.job, 1)
    assert find_seal(world.repo, trainer.job) == first
    assert find_seal(world.repo, trainer.job, 2) is None


def test_a_paused_training_has_no_policy_yet(world: World, tmp_path: Path) -> None:
    """H25: a pause is no end, and others start from what is final."""
    trainer = Trainer(world, tmp_path)
    trainer.save()
    pause(world.repo, trainer.job, by="ada")
    world.end(trainer.claimed, Verdict.PAUSED)
    assert world.states(trainer.job) == {State.PAUSED}
    assert find_seal(world.repo, trainer.job) is None
    cancel(world.repo, trainer.job, by="ada")
    seal = find_seal(world.repo, trainer.job)
    assert seal is not None
    assert seal.latest is not None


def test_what_a_policy_names_outlives_its_job(world: World, tmp_path: Path) -> None:
    """H34: of a deleted training the saves stay that others may start from."""
    trainer = Trainer(world, tmp_path)
    trainer.save()
    trainer.save()
    cell, _ = give_verdict(world.repo, trainer.claimed.record, trainer.ending())
    settle_own(world.repo, cell, trainer.claimed.running_version)
    assert delete(world.repo, trainer.job, by="ada").policies_stay
    seal = find_seal(world.repo, trainer.job)
    assert seal is not None
    assert seal.latest is not None
    restore(world.repo, seal.latest.manifest, tmp_path / "pinned", sha256=seal.latest.sha256)
    manifests = [
        key for key in world.names(keys.checkpoints_folder(trainer.job)) if "manifest" in key
    ]
    assert manifests == [seal.latest.manifest]
