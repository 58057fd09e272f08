"""What it costs to look for secrets in what a command prints, as a multiple of passing it on: of
the processor's time of this one thread."""

from __future__ import annotations

import random
import string
import threading
import time

from stado_agent.masking import MaskedSink, Masker
from tests.bench.figures import Figure

_PIECE_BYTES = 64 * 1024
_PIECES = 100
_ROUNDS = 7
_VALUES = 5
_LENGTH = 32


def measure() -> list[Figure]:
    dice = random.Random(1)
    values = [
        "".join(dice.choices(string.ascii_letters + string.digits, k=_LENGTH)) for _ in "12345"
    ]
    printed = _printed(dice)
    counts = (0, 1, _VALUES)
    best = dict.fromkeys(counts, float("inf"))
    for _ in range(_ROUNDS):  # interleaved, so that all meet the same disturbances
        for count in counts:
            best[count] = min(best[count], _seconds(values[:count], printed))
    none, one, five = (best[count] for count in counts)
    return [
        Figure("one secret, of passing on", one / none, "x"),
        Figure("five secrets, of passing on", five / none, "x"),
        Figure("five secrets, of one", five / one, "x", 2.5),
    ]


def _printed(dice: random.Random) -> list[bytes]:
    """As a training prints it."""
    text = bytearray()
    while len(text) < _PIECE_BYTES * _PIECES:
        step, loss = dice.randrange(10**6), dice.random()
        text += f"2026-11-30 08:12:07 INFO step={step} loss={loss:.6f} tokens/s=81234\n".encode()
    return [bytes(text[at : at + _PIECE_BYTES]) for at in range(0, len(text), _PIECE_BYTES)]


def _seconds(values: list[str], pieces: list[bytes]) -> float:
    kept = bytearray()
    append = kept.extend
    if values:
        append = MaskedSink(Masker(values), kept.extend, threading.Lock()).append
    began = time.thread_time()
    for piece in pieces:
        append(memoryview(piece))
    return time.thread_time() - began
