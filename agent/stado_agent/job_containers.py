"""The commands of one job, each in a container of its image."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from stado.core.records import Record
from stado.core.spec import MEMORY_GB_DEFAULT
from stado.errors import EngineFailed
from stado.ports import Clock, Command, JobProcess
from stado_agent.contained_process import ContainedProcess, LastWords, NeverStarted
from stado_agent.container import (
    NO_BASH_EXIT_CODE,
    Belonging,
    ContainerCommand,
    ReadyImage,
    client_argv,
    client_environment,
    strict_argv,
    supervisor_name,
)
from stado_agent.environment import inherited_environment
from stado_agent.host import Host
from stado_agent.workspace import Workspace

_GIB = 1024**3


class JobContainers:
    """`say`: a line into the job's log. `tell` hears of what cannot be got done."""

    def __init__(
        self,
        host: Host,
        clock: Clock,
        workspace: Workspace,
        *,
        say: Callable[[str], None],
        tell: Callable[[str | None], None],
    ) -> None:
        self._host = host
        self._clock = clock
        self._workspace = workspace
        self._say = say
        self._tell = tell
        self._count = 0
        self._last: ContainedProcess | None = None

    def start(
        self, command: Command, record: Record, image: ReadyImage, *, words: LastWords
    ) -> JobProcess:
        """`command` as it is to run in the container; `words` gets what it prints, once that is
        fit to be told. Raises `OSError`."""
        engine = self._host.engine
        if engine is None:
            raise EngineFailed("this host uses no container engine")
        _check_folder(command.folder)
        self._marks.mkdir(mode=0o700, exist_ok=True)
        self._count += 1
        contained = self._contained(command, record, image)
        host = inherited_environment(self._host.environment)
        client = self._host.processes.start(
            Command(
                name=f"{command.name}.container",
                argv=client_argv(engine.program, contained),
                environment=client_environment(host, command.environment),
                folder=self._workspace.root,
                sink=command.sink,
            )
        )
        self._last = ContainedProcess(
            engine, self._clock, client, contained, words=words, say=self._say, tell=self._tell
        )
        return self._last

    def never_started(self, exit_code: int) -> NeverStarted | None:
        """Why the last command, which has ended with this code, was none."""
        if exit_code == NO_BASH_EXIT_CODE and self._no_bash.exists():
            return NeverStarted("--strict-shell takes bash, and its image has none", by_job=True)
        return self._last.never_started if self._last is not None else None

    def with_bash(self, argv: Sequence[str]) -> Sequence[str]:
        """For commands that take bash, of which only the image knows whether it is there. Raises
        `OSError`."""
        self._no_bash.unlink(missing_ok=True)
        return strict_argv(argv, self._no_bash)

    def _contained(self, command: Command, record: Record, image: ReadyImage) -> ContainerCommand:
        memory_bytes = command.memory_bytes
        return ContainerCommand(
            image=image,
            argv=command.argv,
            environment=command.environment,
            mounts=self._mounts(record),
            folder=command.folder,
            belonging=Belonging(
                record=record,
                supervisor=supervisor_name(self._host.identity, self._host.boot_id),
                agent=self._host.folder.root.name,
                number=self._count,
            ),
            id_file=self._workspace.container_file(self._count),
            begun=self._marks / f"begun-{self._count}",
            memory_bytes=memory_bytes,
            shared_memory_bytes=memory_bytes or round(MEMORY_GB_DEFAULT * _GIB),
        )

    def _mounts(self, record: Record) -> list[Path]:
        """What a command may write, and no more of the host: the log's spool is not its own."""
        workspace, spec = self._workspace, record.spec
        mounts = [workspace.work, workspace.inputs, workspace.output]
        mounts += [workspace.checkpoints, workspace.report, self._marks]
        if spec.strict_shell:
            mounts.append(workspace.failed_line.parent)
        return mounts if spec.host_dir is None else [*mounts, Path(spec.host_dir)]

    @property
    def _marks(self) -> Path:
        """How far a container got."""
        return self._workspace.root / "contained"

    @property
    def _no_bash(self) -> Path:
        return self._marks / "no-bash"


def user_of_this_process() -> str:
    """As an engine takes it: files that a container leaves shall be ours."""
    return f"{os.geteuid()}:{os.getegid()}"


def _check_folder(folder: Path) -> None:
    """As a process would be refused: an engine says it in words."""
    if not folder.is_dir():
        code = errno.ENOTDIR if folder.exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), str(folder))
