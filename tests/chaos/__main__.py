"""`python -m tests.chaos`: hurts a deployment of real processes, and checks what is left of it."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tests.chaos.plan import make_plan
from tests.chaos.run import run_once

_SEED_MAX = 10**6


def main() -> int:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    seed = options.seed if options.seed is not None else random.randrange(_SEED_MAX)
    failed = 0
    for number in range(options.runs):
        failed += not _run(options, seed + number)
    if options.runs > 1:
        _say(f"{options.runs - failed} of {options.runs} runs passed")
    return 1 if failed else 0


def _run(options: argparse.Namespace, seed: int) -> bool:
    server = options.store == "seaweedfs"
    plan = make_plan(seed=seed, seconds=options.seconds, jobs=options.jobs, server=server)
    folder = Path(tempfile.mkdtemp(prefix="stado-chaos-"))
    began = time.monotonic()
    _say(
        f"chaos on {options.store}, --seed {seed} --seconds {options.seconds:g} "
        f"--jobs {options.jobs}: in {folder}"
    )
    try:
        violations = run_once(plan, folder, server=server, say=_say)
    except BaseException:
        _say(f"the run broke off; what there is of it is in {folder}")
        raise
    verdict = "passed" if not violations else f"FAILED; look into {folder}"
    _say(f"{verdict} (seed {seed}, {time.monotonic() - began:.0f} s in all)\n")
    if not violations:
        shutil.rmtree(folder, ignore_errors=True)
    return not violations


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--store", choices=("seaweedfs", "file"), default="seaweedfs")
    parser.add_argument("--seconds", type=float, default=180, help="of faults; then it is healed")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", type=int, help="of the plan; drawn and told when not stated")
    parser.add_argument(
        "--runs", type=int, default=1, help="one after another, each with the next seed"
    )
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
