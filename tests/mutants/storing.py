"""Stores that repeat requests without one of their rules."""

from __future__ import annotations

import pytest

from stado.errors import Exists, StoreError
from stado.storage import retry
from stado.storage.port import Version
from tests.mutants.mutant import Mutant, replaced

Failed = pytest.fail.Exception
"""Of `pytest.raises`, when nothing was."""

RETRY = "tests/storage/test_retry.py"


def create_and_believe(self: retry._Create) -> Version:
    return self._store.create(self._key, self._data)


def take_for_anothers(self: retry._Create, error: StoreError) -> Version:
    raise Exists(self._key) from error


def take_for_our_own(self: retry._Create, error: StoreError) -> Version:
    return self._store.head(self._key).version


MUTANTS = (
    Mutant(
        "a create that meets itself is another's",
        "After an attempt without an answer, what holds the bytes that were sent is our own.",
        f"{RETRY}::test_late_create_does_not_turn_on_its_own_caller",
        replaced(retry._Create, "_own_version", take_for_anothers),
        fails_with=Exists,
    ),
    Mutant(
        "a create that meets another's takes it for its own",
        "After an attempt without an answer, what holds other bytes is somebody else's.",
        f"{RETRY}::test_create_of_another_is_told_after_an_unclear_attempt",
        replaced(retry._Create, "_own_version", take_for_our_own),
        fails_with=Failed,
    ),
    Mutant(
        "refused attempts are believed",
        "A write that was refused for the time being may have been applied all the same.",
        f"{RETRY}::test_own_write_of_which_the_store_said_that_it_was_refused_is_known_again",
        replaced(retry._Create, "once", create_and_believe),
        fails_with=Exists,
    ),
)
