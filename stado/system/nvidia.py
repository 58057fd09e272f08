"""NVIDIA's accelerators, as `nvml_probe` tells of them, which is a process of its own.

Nobody waits for it for longer than a moment. One that does not answer is given up, and no other is
started before it is gone: each would hang in the same driver. Other makes get a class of this shape
beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stado.errors import AcceleratorsUnknown, ChannelClosed
from stado.ports import Accelerator
from stado.system.channel import SocketChannel, open_pair
from stado.system.nvidia_cards import Cards, all_ailing, cards_after

_PROGRAM = Path(__file__).with_name("nvml_probe.py")
_PATIENCE_SECONDS = 2.0
_ANSWER_SECONDS_MAX = 20.0
"""A driver that nobody has open takes seconds for each card before it answers at first."""
_START_AGAIN_SECONDS = 60.0
_LOOK_FOR_DRIVER_SECONDS = 600.0
_END_SECONDS = 2.0

Kill = Callable[[int, int], None]
"""Like `os.kill`."""


class NvidiaAccelerators:
    """Not for several threads, nor for forked copies."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        kill: Kill = os.kill,
        end_seconds: float = _END_SECONDS,
    ) -> None:
        """`environment`: of the probe, in which the dynamic linker finds NVML; None: ours.
        `end_seconds`: what an ended one may take to be gone, if it hangs in no driver."""
        self._environment = environment
        self._patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._kill = kill
        self._end_seconds = end_seconds
        self._probe: _Probe | None = None
        self._given_up: _Probe | None = None
        self._start_at = float("-inf")
        self._asked_at = 0.0
        self._cards: Cards = {}
        self._trouble: str | None = "NVIDIA's driver has not answered yet"

    def look(self) -> list[Accelerator]:
        """As `Hardware.accelerators`."""
        if self._probe is None:
            self._start_when_due()
        if self._probe is not None:
            self._ask(self._probe)
        if self._trouble is not None and not self._cards:
            raise AcceleratorsUnknown(self._trouble)
        return list(self._cards.values())

    def close(self) -> None:
        """Ends the probe, which ends with this process anyway."""
        if self._probe is not None:
            self._give_up(self._probe)

    def _start_when_due(self) -> None:
        if self._given_up is not None and self._given_up.has_ended():
            self._given_up = None
        if self._given_up is not None or self._monotonic() < self._start_at:
            return
        try:
            self._probe = _Probe(self._environment)
        except OSError as error:
            self._fail(f"its probe cannot be started: {error.strerror}")

    def _ask(self, probe: _Probe) -> None:
        """An answer is waited for once, and then looked for."""
        patience_seconds = 0.0
        try:
            if not probe.asked:
                self._asked_at = self._monotonic()
                probe.ask()
                patience_seconds = self._patience_seconds
            answer = probe.answer(patience_seconds)
        except (ChannelClosed, ValueError):
            self._give_up(probe)
            self._fail(f"the probe of NVIDIA's driver {probe.how_it_ended()}")
            return
        if answer is not None:
            self._heed(probe, answer)
        elif self._monotonic() - self._asked_at >= _ANSWER_SECONDS_MAX:
            self._give_up(probe)
            self._fail(f"NVIDIA's driver does not answer within {_ANSWER_SECONDS_MAX:g} s")

    def _heed(self, probe: _Probe, answer: Mapping[str, Any]) -> None:
        if "cards" in answer:
            self._trouble = None
            self._cards = cards_after(self._cards, answer)
            return
        self._give_up(probe)
        if "failed" in answer:
            self._fail(answer["failed"])
        elif self._cards:
            self._fail(f"NVIDIA's driver is gone: {answer['absent']}")
        else:
            self._trouble = None
            self._start_at = self._monotonic() + _LOOK_FOR_DRIVER_SECONDS

    def _give_up(self, probe: _Probe) -> None:
        probe.end(self._kill, within_seconds=self._end_seconds)
        self._probe, self._given_up = None, probe

    def _fail(self, why: str) -> None:
        self._trouble = why
        self._cards = all_ailing(self._cards, why)
        self._start_at = self._monotonic() + _START_AGAIN_SECONDS


class _Probe:
    """A running one."""

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        """Raises `OSError`."""
        ours, theirs = open_pair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(_PROGRAM), str(os.getpid())],
                    env=environment,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        self._channel = SocketChannel(ours)
        self.asked = False
        """Whether a question stands."""

    def ask(self) -> None:
        """Raises `ChannelClosed`."""
        self.asked = True
        self._channel.send({})

    def answer(self, patience_seconds: float) -> dict[str, Any] | None:
        """None: not yet. Raises `ChannelClosed`, and `ValueError` for what is no answer."""
        answer = self._channel.receive(patience_seconds)
        self.asked = answer is None
        return answer

    def end(self, kill: Kill, *, within_seconds: float) -> None:
        """What hangs in a driver may outlive a KILL."""
        self._channel.close()
        if self.has_ended(within_seconds=0.0 if self.asked else within_seconds):
            return
        with suppress(ProcessLookupError):
            kill(self._process.pid, signal.SIGKILL)
        self.has_ended(within_seconds=within_seconds)

    def has_ended(self, *, within_seconds: float = 0.0) -> bool:
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def how_it_ended(self) -> str:
        code = self._process.returncode
        if code is None:
            return "says what is not understood"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
