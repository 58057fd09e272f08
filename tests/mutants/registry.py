"""All rules that can be switched off, one by one.

For tests of the tests: a scenario or a simulation that finds nothing wrong without a rule does not
guard it.
"""

from __future__ import annotations

from tests.mutants import (
    claims,
    closing,
    firing,
    following,
    judging,
    keeping,
    limiting,
    metering,
    placing,
    prioritizing,
    reopening,
    retrying,
    settling,
    storing,
    telling,
    timing,
    working,
    yielding,
)
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *claims.MUTANTS,
    *closing.MUTANTS,
    *settling.MUTANTS,
    *reopening.MUTANTS,
    *judging.MUTANTS,
    *working.MUTANTS,
    *storing.MUTANTS,
    *following.MUTANTS,
    *firing.MUTANTS,
    *retrying.MUTANTS,
    *metering.MUTANTS,
    *limiting.MUTANTS,
    *placing.MUTANTS,
    *prioritizing.MUTANTS,
    *telling.MUTANTS,
    *timing.MUTANTS,
    *yielding.MUTANTS,
    *keeping.MUTANTS,
)
