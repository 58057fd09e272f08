"""Whatever the seed draws, no rule is broken, and everything comes to rest.

Each seed draws a deployment of its own. The first hundred are tried here; `make sim` tries 300,
`make soak` ever new ones."""

from __future__ import annotations

import pytest

from tests.simulation.world import run

SEEDS = 100
_BLOCK = 5


@pytest.mark.parametrize("first", range(0, SEEDS, _BLOCK))
def test_no_seed_breaks_a_rule(first: int) -> None:
    """`make sim SEED=<number>` shows what happened in one that does."""
    outcomes = [run(seed) for seed in range(first, first + _BLOCK)]
    assert [outcome.violation for outcome in outcomes] == [None] * _BLOCK
    assert sum(outcome.jobs for outcome in outcomes) > 0
