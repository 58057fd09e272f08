"""Equal seeds make equal runs, in other processes and with other hash seeds too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def traced(seed: int, hash_seed: int) -> str:
    path = os.pathsep.join(str(ROOT / name) for name in (".", "agent", "coordinator"))
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout


@pytest.mark.parametrize("seed", [0, 6, 14])
def test_equal_seeds_make_equal_traces(seed: int) -> None:
    first, second = traced(seed, hash_seed=1), traced(seed, hash_seed=2)
    assert first == second
    assert first.count("\n") > 300


def test_other_seeds_make_other_traces() -> None:
    assert traced(0, hash_seed=1) != traced(6, hash_seed=1)
