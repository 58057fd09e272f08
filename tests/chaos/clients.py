"""The people of a chaos run: they submit and cancel by the command line, are killed on the way,
and do it again until they are told that it stands.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.ledger import Ledger
from tests.chaos.plan import SCRIPT, Cancel, Plan, Submission, Verify

_AT_ONCE = {"submit": 3, "cancel": 2}
"""Processes; a cancel that waits behind submissions would come when its job has ended."""

_SECONDS_MAX = 120.0
_PAUSE_SECONDS = 0.5
_ANSWERED = {"submit": (0,), "cancel": (0, 1)}
"""By exit code; 1: the job had ended, or ended otherwise."""
_UNKNOWN = 69
_REFUSED = 2
_RESOURCES = ("--cpu", "0.5", "--memory-gb", "0.1")


class Clients:
    """Works off a plan, each thing when it is due. `may_refuse` tells whether there may be no
    store to be found just now."""

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        folder: Path,
        environment: Mapping[str, str],
        *,
        may_refuse: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._folder = folder
        self._environment = dict(environment)
        self._may_refuse = may_refuse
        self._began = time.monotonic()
        self._slots = {what: threading.Semaphore(count) for what, count in _AT_ONCE.items()}
        self._deeds: list[tuple[float, Callable[[Any], None], Any]] = [
            *((one.at, self._submit, one) for one in plan.submissions),
            *((one.at, self._submit, one) for one in plan.submissions if one.twice),
            *((one.at, self._cancel, one) for one in plan.cancels),
        ]
        self._deeds.sort(key=lambda deed: deed[0])
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def turn(self) -> None:
        """Begins what is due."""
        while self._deeds and self._deeds[0][0] <= time.monotonic() - self._began:
            _, act, what = self._deeds.pop(0)
            thread = threading.Thread(target=act, args=(what,), daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def done(self) -> bool:
        return not self._deeds and not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """No client is started any more."""
        self._stopped = True

    # --- deeds --------------------------------------------------------------------------

    def _submit(self, submission: Submission) -> None:
        batch = self._folder / f"{submission.run_id}.batch"
        traces = self._folder / "traces"
        batch.write_text("".join(f"{job.command(traces)}\n" for job in submission.jobs))
        argv = ["submit", "--json", "--run-id", submission.run_id, "--batch", str(batch)]
        argv += [*_RESOURCES, *_verify_option(submission, traces)]
        if submission.max_lease_losses is not None:
            argv += ["--max-lease-losses", submission.max_lease_losses]
        answer = self._insist("submit", argv, submission.killed_after)
        if answer is not None:
            self._ledger.note_told(submission.run_id, answer["job_ids"])

    def _cancel(self, cancel: Cancel) -> None:
        while (job_id := self._ledger.find_job(cancel.run_id, cancel.index)) is None:
            if self._stopped:
                return
            time.sleep(_PAUSE_SECONDS)
        argv = ["cancel", job_id, "--no-wait", "--json"]
        answer = self._insist("cancel", argv, cancel.killed_after)
        for told in answer["jobs"] if answer is not None else ():
            if told["cancelled_now"] or told["cancel_asked"]:
                self._ledger.note_cancel(told["job_id"], told["epoch"])

    def _insist(
        self, what: str, argv: Sequence[str], killed_after: Sequence[float]
    ) -> dict[str, Any] | None:
        """The answer, as JSON; None when the run is over, or the answer was none that we know."""
        patience = [*killed_after]
        while not self._stopped:
            limit = patience.pop(0) if patience else None
            with self._slots[what]:
                code, out, err = self._call(argv, limit)
            if code in _ANSWERED[what] and out:
                self._ledger.count(f"{what} answered")
                answer: dict[str, Any] = json.loads(out)
                return answer
            self._ledger.count(f"{what} {'killed' if code < 0 else f'ended with {code}'}")
            if not self._is_expected(code):
                self._ledger.note_surprise(f"stado {' '.join(argv[:3])} ended with {code}: {err}")
                return None
            time.sleep(_PAUSE_SECONDS)
        return None

    def _is_expected(self, code: int) -> bool:
        return code < 0 or code == _UNKNOWN or (code == _REFUSED and self._may_refuse())

    def _call(self, argv: Sequence[str], limit: float | None) -> tuple[int, str, str]:
        """Killed after so many seconds; none takes longer than two minutes unless it hangs."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stado.cli.main", *argv],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=limit or _SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            if limit is None:
                self._ledger.note_surprise(f"stado {' '.join(argv[:3])} hung: {err}")
        return process.returncode, out, err


def _verify_option(submission: Submission, traces: Path) -> list[str]:
    if submission.verify is Verify.NOTHING:
        return []
    code = 0 if submission.verify is Verify.PASSES else 5
    return ["--verify", f"exec sh {SCRIPT} {traces} verify 0 {code} 0"]
