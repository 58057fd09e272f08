"""What a job needs before its command can start, brought to its workspace: inputs, a checkpoint,
secrets, code, an image.

Nothing of it is a start of the job. What cannot be had for good ends the job
(`InputUnavailable`); a store that is away is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from stado.core.records import Record
from stado.core.spec import GitRepo, Snapshot, Spec, repo_text
from stado.errors import Conflict, EngineFailed, NotFound, Refused, Unreadable
from stado.jobs.archives import UnsafeArchive
from stado.jobs.policy_seals import saves_named
from stado.jobs.repository import Repository
from stado.jobs.snapshots import text_of as snapshot_text
from stado.ports import Command, Engine, JobProcess
from stado.storage.port import FileDigest
from stado_agent.breaks import InputUnavailable
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.container import ReadyImage
from stado_agent.downloads import Interrupted, Pace, download
from stado_agent.elsewhere import Elsewhere
from stado_agent.environment import command_environment
from stado_agent.git_checkout import (
    CheckoutFailed,
    GitAnswer,
    GitCheckout,
    folder_within,
    git_environment,
)
from stado_agent.host import Host
from stado_agent.host_cache import HostCache
from stado_agent.input_fetching import InputFetching
from stado_agent.job_commands import JobCommands
from stado_agent.job_containers import user_of_this_process
from stado_agent.log_spool import LogSpool
from stado_agent.patience import Patience
from stado_agent.secrets import SecretRefused, take_secrets
from stado_agent.setup_output import SetupOutput
from stado_agent.snapshot_fetch import SnapshotFetch
from stado_agent.workspace import Workspace

Result = TypeVar("Result")

_SETUP_SECONDS_MAX = 3600.0
"""For one call of git, or the pull of an image. A connection over which nothing comes is given up
long before."""

_PULL_SECONDS_BEFORE_TROUBLE = 60.0
_DISK_FULL = "no space left on device"

_NO_WISHES = Spec(command="")
"""What a job wants in its environment is for its command, not for what prepares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the steps work with, and the rest of the job's run, too."""

    workspace: Workspace
    commands: JobCommands
    checkpoints: CheckpointSync
    spool: LogSpool
    patience: Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What has to be seen to while a step takes its time."""

    fence: Callable[[], None]
    """Raises when the epoch is not ours any more."""
    heed: Callable[[], None]
    """The same, and when a cancel was asked for."""
    break_off: Callable[[], None]
    """For threads that must not act for the job themselves: raises `Interrupted` when `heed` has
    something to do."""
    refusals: Callable[[], AbstractContextManager[None]]
    """Around what is asked of this host."""
    ship: Callable[[], None]
    """Lets what is printed get to the store."""
    tell: Callable[[str | None], None]
    """Hears what cannot be got done for the time being."""
    look_seconds: float


class Preparation:
    """Of one job, for one epoch. Each step is called once, and as often as it is needed."""

    def __init__(
        self,
        repo: Repository,
        host: Host,
        record: Record,
        means: Means,
        watch: Watch,
    ) -> None:
        self._repo = repo
        self._host = host
        self._record = record
        self._spec = record.spec
        self._workspace = means.workspace
        self._commands = means.commands
        self._checkpoints = means.checkpoints
        self._spool = means.spool
        self._patience = means.patience
        self._watch = watch
        self._pace = Pace(repo.clock)

    # --- inputs and checkpoint ----------------------------------------------------------

    def fetch_inputs(self) -> None:
        if not self._spec.inputs:
            return
        elsewhere = Elsewhere(self._repo.clock, self._host.open_store)
        fetching = InputFetching(
            self._repo,
            self._workspace.inputs,
            cache=self._host.input_cache(self._repo),
            elsewhere=elsewhere,
            pace=self._pace,
            heed=self._watch.break_off,
        )
        try:
            for wanted in self._spec.inputs:
                with self._watch.refusals():
                    self._patience.persist(
                        partial(fetching.fetch, wanted),
                        between=self._watch.heed,
                        look_seconds=self._watch.look_seconds,
                    )
        except Interrupted:
            self._watch.heed()
            raise
        finally:
            elsewhere.close()

    def restore_checkpoint(self) -> None:
        """Its own newest one; of a job that has none the one that it was to start from."""
        job_id, start_from = self._record.id, self._spec.start_from
        if self._spec.makes_policy and self._record.policy_revision > 1:
            self._checkpoints.spare(self._find_saves_named())
        own = self._record.epoch > 1 and self._restore(
            lambda: self._checkpoints.restore_newest(
                job_id, between=self._watch.heed, fetch=self._fetch
            ),
            "no checkpoint of it can be restored",
        )
        if not own and start_from is not None:
            self._restore(
                lambda: self._checkpoints.restore_pinned(
                    start_from, between=self._watch.heed, fetch=self._fetch
                ),
                f"checkpoint {start_from.ref} cannot be restored",
            )

    def _find_saves_named(self) -> list[str] | None:
        """None where somebody has damaged what names them."""
        try:
            return self._patience.persist(
                lambda: saves_named(
                    self._repo, self._record.id, revisions=self._record.manual_retries
                ),
                between=self._watch.fence,
            )
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return None

    def _restore(self, step: Callable[[], Result], what: str) -> Result:
        try:
            with self._watch.refusals():
                return self._patience.persist(
                    step,
                    between=self._watch.heed,
                    answers=(NotFound, Conflict),
                    look_seconds=self._watch.look_seconds,
                )
        except (Conflict, NotFound, Refused, Unreadable) as error:
            raise InputUnavailable(f"{what}: {error}") from error

    # --- secrets ------------------------------------------------------------------------

    def take_secrets(self) -> dict[str, str]:
        """Variable to value; nothing where none is asked for."""
        if not self._spec.secrets:
            return {}
        try:
            return take_secrets(
                self._host.secrets,
                self._spec.secrets,
                clock=self._repo.clock,
                entropy=self._repo.entropy,
                heed=self._watch.heed,
                tell=self._watch.tell,
            )
        except SecretRefused as error:
            raise InputUnavailable(str(error)) from None

    # --- code ---------------------------------------------------------------------------

    def bring_code(self) -> None:
        """After the checkpoint: from now on the log is shipped, and what is in the checkpoint
        folder saved, while git works."""
        try:
            with self._watch.refusals():
                if self._spec.snapshot is not None:
                    self._bring_snapshot(self._spec.snapshot)
                if self._spec.repo is not None:
                    self._check_out(self._spec.repo)
        except (CheckoutFailed, Conflict, Refused, Unreadable, UnsafeArchive) as error:
            what = "snapshot" if self._spec.snapshot is not None else "repository"
            detail = f"its {what} cannot be had: {error}"
            self.say(detail)
            raise InputUnavailable(detail) from error

    def _bring_snapshot(self, snapshot: Snapshot) -> None:
        cache = HostCache(self._host.folder.snapshots, self._repo.clock)

        def insist(step: Callable[[], None]) -> None:
            self._patience.persist(
                step,
                between=self._watch.heed,
                answers=(Conflict,),
                look_seconds=self._watch.look_seconds,
            )

        fetch = SnapshotFetch(
            self._repo, cache, fetch=self._fetch, insist=insist, heed=self._watch.heed
        )
        fetch.bring(snapshot, self._workspace.work)
        self.say(snapshot_text(snapshot))

    def _check_out(self, repo: GitRepo) -> None:
        self.say(f"checking out {repo_text(repo)}")
        cache = HostCache(self._host.folder.repos, self._repo.clock)
        GitCheckout(cache, self._run_git, self._watch.heed).check_out(repo, self._workspace.work)
        folder_within(self._workspace.work, repo.folder)
        if (self._workspace.work / ".gitmodules").exists():
            self.say("its submodules are not fetched")

    def _run_git(self, argv: Sequence[str], folder: Path) -> GitAnswer:
        """As a process of the job, that a cancel ends. It is no start of the job."""
        output = SetupOutput(self._spool.append)
        try:
            process = self._commands.start(self._git_command(argv, folder, output))
        except FileNotFoundError as error:
            if error.filename != argv[0]:
                raise
            host = self._host.claimant.host
            raise CheckoutFailed(f"git is not installed on {host}: install it there") from None
        exit_code = self._attend(process)
        if exit_code is None:
            raise CheckoutFailed(f"git took longer than {_SETUP_SECONDS_MAX:g} s")
        output.flush()
        return GitAnswer(exit_code, output.lines)

    def _git_command(self, argv: Sequence[str], folder: Path, output: SetupOutput) -> Command:
        return Command(
            name=f"{self._record.id}.{self._record.epoch}.git",
            argv=argv,
            environment=git_environment(self._plain_environment()),
            folder=folder,
            sink=output,
        )

    def _plain_environment(self) -> dict[str, str]:
        return command_environment(
            self._host.environment, self._record.evolve(spec=_NO_WISHES), self._workspace
        )

    # --- image --------------------------------------------------------------------------

    def bring_image(self, image: str) -> ReadyImage:
        """An engine that does not answer is the host's trouble; an image that it cannot get is the
        job's."""
        with self._watch.refusals():
            engine = self._host.engine
            if engine is None:
                raise EngineFailed("this host uses no container engine")
            facts = engine.facts()
            found = engine.find_image(image) or self._pull(engine, image)
        self.say(f"image {image} is {found}")
        return ReadyImage(id=found, user=None if facts.as_us else user_of_this_process())

    def _pull(self, engine: Engine, image: str) -> str:
        """As a process of the job, like git."""
        self.say(f"pulling image {image}")
        output = SetupOutput(self._spool.append)
        command = Command(
            name=f"{self._record.id}.{self._record.epoch}.pull",
            argv=[engine.program, "pull", image],
            environment=self._plain_environment(),
            folder=self._workspace.work,
            sink=output,
        )
        exit_code = self._attend(self._commands.start(command), tell=self._tell_of_pull(output))
        self._watch.tell(None)
        output.flush()
        found = engine.find_image(image)
        if found is not None:
            return found
        why = f"the pull took longer than {_SETUP_SECONDS_MAX:g} s"
        if exit_code is not None:
            why = _complaint(output.lines) or f"docker pull exited with {exit_code}"
        if _DISK_FULL in why:
            raise EngineFailed(why)
        detail = f"its image cannot be had: {why}"
        self.say(detail)
        raise InputUnavailable(detail)

    def _tell_of_pull(self, output: SetupOutput) -> Callable[[float], None]:
        def tell(seconds: float) -> None:
            if seconds >= _PULL_SECONDS_BEFORE_TROUBLE:
                last = output.lines[-1:] or ["nothing was said yet"]
                self._watch.tell(
                    f"its image has been on its way for {seconds / 60:.0f} min: {last[0]}"
                )

        return tell

    # --- what all of them need ----------------------------------------------------------

    def _fetch(self, key: str, path: Path, size: int) -> FileDigest:
        return download(
            self._repo.store, key, path, size=size, heed=self._watch.heed, pace=self._pace
        )

    def _attend(
        self, process: JobProcess, *, tell: Callable[[float], None] = lambda _: None
    ) -> int | None:
        """Waits for its end, and ends what it left. `tell` hears how long that takes. None when it
        took too long, and was stopped."""
        begun = self._repo.clock.monotonic()
        while True:
            exit_code = process.wait(self._watch.look_seconds)
            if exit_code is not None:
                self._commands.end(process)
                return exit_code
            self._watch.heed()
            self._watch.ship()
            seconds = self._repo.clock.monotonic() - begun
            tell(seconds)
            if seconds > _SETUP_SECONDS_MAX:
                self._commands.stop()
                return None

    def say(self, text: str) -> None:
        """A line of ours in the job's log, before the command's."""
        line = f"[stado] {text}\n".encode("utf-8", "backslashreplace")
        self._spool.append(memoryview(line))


def _complaint(lines: Sequence[str]) -> str | None:
    """What docker says of why it failed; its last line where that is not told apart."""
    told = [line for line in lines if line]
    errors = [line for line in told if line.startswith("Error")]
    return next(reversed(errors or told), None)
