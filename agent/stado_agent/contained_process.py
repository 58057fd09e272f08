"""A command in a container, as a process of its job: the engine's client, which we started, and
the container, which the engine did.

The client's end is a hint and no more. What became of the command is what the engine says of the
container, by its id; while it does not answer, the command counts as living.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.errors import EngineFailed
from stado.ports import (
    Clock,
    ContainerState,
    Engine,
    JobProcess,
    ProcessIdentity,
    Resistance,
)
from stado_agent.container import COMMAND_LABEL, SHELL, ContainerCommand

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25
_LOOK_SECONDS_MAX = 5.0
_LOOKS_BEFORE_TROUBLE = 3
_CANNOT_START = (126, 127)
"""Exit codes of the client, and of the engine's init, for what cannot be executed."""

_UNKNOWN_EXIT_CODE = 255
_ID = re.compile(r"[0-9a-f]{64}")
_KEPT_BYTES = 4096
_SAID_MAX = 300


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The engine did not start the command."""

    why: str
    by_job: bool
    """Whether it is what was asked for that cannot be started, and not the engine that failed."""


class LastWords:
    """A sink that passes everything on, and keeps what came last: of a client that could not start
    a container that is why. Secrets are masked before it: what it cuts off could be half of one."""

    def __init__(self, sink: Callable[[memoryview], None]) -> None:
        self._sink = sink
        self._kept = b""

    def __call__(self, data: memoryview) -> None:
        self._kept = (self._kept + bytes(data[-_KEPT_BYTES:]))[-_KEPT_BYTES:]
        self._sink(data)

    @property
    def line(self) -> str:
        """The client's own complaint; else its last line."""
        lines = [line.strip() for line in self._kept.decode("utf-8", "replace").splitlines()]
        told = [line for line in lines if line]
        complaints = [line for line in told if line.startswith("docker: ")]
        words = (complaints or told or ["docker failed without a word"])[-1]
        return words.removeprefix("docker: ")[:_SAID_MAX]


class ContainedProcess:
    """`JobProcess`. For the thread that waits for it, but for `wake`."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        client: JobProcess,
        command: ContainerCommand,
        *,
        words: LastWords,
        say: Callable[[str], None],
        tell: Callable[[str | None], None],
    ) -> None:
        """`say`: a line into the job's log. `tell` hears that the engine does not answer, and None
        once it does again."""
        self._engine = engine
        self._clock = clock
        self._client = client
        self._id_file = command.id_file
        self._begun = command.begun
        self._label = f"{COMMAND_LABEL}={command.belonging.command}"
        self._words = words
        self._say = say
        self._tell = tell
        self._id: str | None = None
        self._code: int | None = None
        self._over = False
        """Whether nothing of the container lives, nor ever will: by the engine's own word."""
        self._removed = False
        self._killed = False
        """By us."""
        self._final: ContainerState | None = None
        """What the engine said once nothing of it lived."""
        self._look_at = float("-inf")
        self._pause = _LOOK_SECONDS
        self._unanswered = 0
        """Looks, one after another."""
        self._lives_alone = 0
        """Looks at which it lived without its client."""
        self.never_started: NeverStarted | None = None
        """Once `wait` has returned an exit code."""

    @property
    def identity(self) -> ProcessIdentity:
        return self._client.identity

    @property
    def enclosure(self) -> Sequence[Path]:
        return self._client.enclosure

    def wait(self, timeout_seconds: float) -> int | None:
        if self._code is not None:
            return self._code
        client_code = self._client.wait(timeout_seconds)
        if client_code is None:
            return None
        if not self._is_over():
            if timeout_seconds > 0:
                self._clock.sleep(min(timeout_seconds, _LOOK_SECONDS))
            return None
        self._code = self._exit_code(client_code)
        return self._code

    def wake(self) -> None:
        self._client.wake()

    def living(self) -> list[ProcessIdentity]:
        """The client stands for a container that is not known to be gone."""
        living = self._client.living()
        return living or ([] if self._is_over() else [self._client.identity])

    def signal_all(self, signal_number: int) -> list[Resistance]:
        """TERM goes to the container, and to the client only while there is none: what that does
        with a signal is its own business. KILL removes the container, then ends the client."""
        kills = signal_number == signal.SIGKILL
        resisting = self._signal_container(signal_number, kills=kills)
        if kills or (self._id is None and not resisting):
            resisting += self._client.signal_all(signal_number)
        return resisting

    def memory_exceeded(self) -> str | None:
        """Told by the engine, once it has ended."""
        if self._final is None or not self._final.out_of_memory:
            return None
        return "the kernel ended it at the limit of its container's memory"

    def close(self, timeout_seconds: float) -> bool:
        """And removes the container, of which nothing lives. What the engine does not remove is
        left to the agent, for when it answers again."""
        all_read = self._client.close(timeout_seconds)
        try:
            if not self._removed and self._find_id() is not None:
                self._engine.remove(str(self._id))
                self._removed = True
        except EngineFailed as error:
            log.warning("event=container_left container=%s error=%r", self._id, error.strerror)
        return all_read

    # --- the container ------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Asked of the engine now and then only, and not while the client lives."""
        if self._over or self._client.wait(0) is None:
            return self._over
        if self._clock.monotonic() < self._look_at:
            return False
        try:
            self._over = self._look()
            self._note_answer()
        except EngineFailed as error:
            self._note_silence(error)
        self._look_at = self._clock.monotonic() + self._pause
        self._pause = min(self._pause * 1.5, _LOOK_SECONDS_MAX)
        return self._over

    def _look(self) -> bool:
        """With a client that is gone: one that has not left an id has started nothing, for it asks
        for the start after that. Raises `EngineFailed`."""
        container = self._ask_for_id()
        if container is None:
            return True
        seen = self._engine.state(container)
        if seen is not None and seen.lives:
            self._note_life_alone()
            return False
        self._final = seen
        self._removed = seen is None
        return True

    def _ask_for_id(self) -> str | None:
        """None when the engine has none, and had none. Raises `EngineFailed`."""
        if self._find_id() is None:
            found = self._engine.containers(self._label, telling=COMMAND_LABEL)
            self._id = next(iter(found), None)
        return self._id

    def _find_id(self) -> str | None:
        """From the client's file, without asking anybody."""
        if self._id is None:
            try:
                text = self._id_file.read_text("ascii", "replace").strip()
            except OSError:
                return None
            self._id = text if _ID.fullmatch(text) else None
        return self._id

    def _signal_container(self, signal_number: int, *, kills: bool) -> list[Resistance]:
        if self._over:
            return []
        try:
            container = self._ask_for_id() if kills else self._find_id()
            if container is not None and kills:
                self._engine.remove(container)
                self._over = self._removed = self._killed = True
            elif container is not None:
                self._engine.signal(container, signal_number)
        except EngineFailed as error:
            self._note_silence(error)
            called = "its container" if self._id is None else f"container {self._id[:12]}"
            return [Resistance(self.identity, f"{called}: {error.strerror}")]
        self._look_at, self._pause = float("-inf"), _LOOK_SECONDS
        return []

    def _note_silence(self, error: EngineFailed) -> None:
        self._unanswered += 1
        if self._unanswered == 1:
            log.warning("event=engine_failed container=%s error=%r", self._id, error.strerror)
        if self._unanswered >= _LOOKS_BEFORE_TROUBLE:
            self._tell(
                "whether its container still runs is not known: the engine was asked "
                f"{self._unanswered} times: {error.strerror}"
            )

    def _note_answer(self) -> None:
        if self._unanswered >= _LOOKS_BEFORE_TROUBLE:
            self._tell(None)
        self._unanswered = 0

    def _note_life_alone(self) -> None:
        """Not at the first look: its end may be on its way."""
        self._lives_alone += 1
        if self._lives_alone == _LOOKS_BEFORE_TROUBLE:
            log.warning("event=client_gone container=%s", self._id)
            self._say(
                "the client of the container engine has ended before the command: what that "
                "prints from then on is lost"
            )

    # --- how it ended -------------------------------------------------------------------

    def _exit_code(self, client_code: int) -> int:
        """The engine's. A client's 0 is worth nothing without it."""
        if self._final is not None and self._final.was_started:
            return self._code_of_started(self._final.exit_code)
        if self._removed and self._final is None:
            if not self._killed:
                self._say("its container was removed by somebody: how it ended is not known")
            return client_code or _UNKNOWN_EXIT_CODE
        why = (self._final.error if self._final is not None else "") or self._words.line
        self.never_started = NeverStarted(why, by_job=client_code in _CANNOT_START)
        return client_code or _UNKNOWN_EXIT_CODE

    def _code_of_started(self, code: int) -> int:
        """The engine starts an init of its own, which finds out what the image has: these are its
        codes then, and a command's own otherwise."""
        if code in _CANNOT_START and not self._begun.exists():
            why = f"its image has no {SHELL} to execute it by: {self._words.line}"
            self.never_started = NeverStarted(why, by_job=True)
        return code
