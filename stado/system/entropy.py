"""Randomness from the kernel alone: it keeps no state that a fork would double."""

from __future__ import annotations

import os

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TOKEN_CHARACTERS = 16
_FAIR_BYTES = 256 - 256 % len(_LETTERS)
"""Bytes below this bound give each letter the same chance; the others are drawn again."""


class LiveEntropy:
    """Randomness that nobody can guess."""

    def token(self) -> str:
        return "".join(_BASE32[byte & 31] for byte in os.urandom(_TOKEN_CHARACTERS))

    def letters(self, count: int) -> str:
        drawn = ""
        while len(drawn) < count:
            fair = (byte for byte in os.urandom(count - len(drawn)) if byte < _FAIR_BYTES)
            drawn += "".join(_LETTERS[byte % len(_LETTERS)] for byte in fair)
        return drawn

    def uniform(self, low: float, high: float) -> float:
        """At least `low`, less than `high` (or `low`, when the two are equal)."""
        fraction = (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)
        return low + (high - low) * fraction
