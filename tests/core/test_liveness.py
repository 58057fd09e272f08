from __future__ import annotations

import pytest

from stado.core.liveness import Vigil, mass_silence


def test_silence_is_counted_from_the_first_look_at_the_same_evidence() -> None:
    vigil = Vigil()
    assert [vigil.look("job", "v1", at) for at in (10.0, 15.0, 30.0)] == [0.0, 5.0, 20.0]


def test_any_change_starts_the_watch_again_even_back_to_what_was() -> None:
    vigil = Vigil()
    vigil.look("job", "v1", 0.0)
    assert vigil.look("job", "v2", 5.0) == 0.0
    assert vigil.look("job", None, 6.0) == 0.0
    assert vigil.look("job", "v1", 9.0) == 0.0
    assert vigil.look("job", "v1", 10.0) == 1.0


def test_a_restart_forgets_one_subject_only() -> None:
    """R190"""
    vigil = Vigil()
    for subject in ("one", "other"):
        vigil.look(subject, "v1", 0.0)
    vigil.restart("one")
    vigil.restart("never seen")
    assert vigil.look("one", "v1", 50.0) == 0.0
    assert vigil.look("other", "v1", 50.0) == 50.0


def test_renewing_counts_all_silence_from_now_on() -> None:
    vigil = Vigil()
    vigil.look("job", "v1", 0.0)
    vigil.renew_all(100.0)
    assert vigil.look("job", "v1", 110.0) == 10.0


def test_only_what_is_kept_is_remembered() -> None:
    vigil = Vigil()
    vigil.look("gone", "v1", 0.0)
    vigil.look("here", "v1", 0.0)
    vigil.keep_only({"here"})
    assert vigil.look("gone", "v1", 9.0) == 0.0
    assert vigil.look("here", "v1", 9.0) == 9.0


@pytest.mark.parametrize(
    ("silent", "busy", "doubtful"),
    [(0, 0, False), (1, 1, False), (2, 2, False), (3, 3, True), (3, 6, False), (4, 7, True)],
)
def test_most_hosts_and_at_least_three_silent_at_once_are_a_reason_for_doubt(
    silent: int, busy: int, doubtful: bool
) -> None:
    assert mass_silence(silent, busy) is doubtful
