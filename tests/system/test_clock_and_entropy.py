"""The machine's clock and randomness."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy


def test_now_is_aware_utc() -> None:
    now = LiveClock().now()
    assert now.tzinfo is UTC
    assert abs((datetime.now(UTC) - now).total_seconds()) < 60


def test_sleep_takes_as_long_as_it_says() -> None:
    clock = LiveClock()
    began = clock.monotonic()
    clock.sleep(0.01)
    assert clock.monotonic() - began >= 0.01


def test_tokens_have_their_shape_and_differ() -> None:
    tokens = [LiveEntropy().token() for _ in range(1000)]
    assert all(re.fullmatch("[a-z2-7]{16}", token) for token in tokens)
    assert len(set(tokens)) == 1000


def test_tokens_differ_between_a_process_and_its_copy() -> None:
    entropy = LiveEntropy()
    entropy.token()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, entropy.token().encode())
        os._exit(0)
    os.wait()
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert len(theirs) == 16
    assert theirs != entropy.token()


def test_letters_use_the_whole_alphabet_evenly() -> None:
    drawn = LiveEntropy().letters(26_000)
    assert len(drawn) == 26_000
    counts = [drawn.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
    assert sum(counts) == 26_000
    # Ten standard deviations around 1000: an unfair draw is further off, a fair one never.
    assert all(690 < count < 1310 for count in counts)
    assert LiveEntropy().letters(0) == ""


def test_uniform_stays_within_its_bounds() -> None:
    drawn = [LiveEntropy().uniform(-1.0, 3.0) for _ in range(2000)]
    assert all(-1.0 <= value < 3.0 for value in drawn)
    assert 0.5 < sum(drawn) / len(drawn) < 1.5
    assert LiveEntropy().uniform(2.0, 2.0) == 2.0
