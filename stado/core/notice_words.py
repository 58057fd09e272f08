"""Rules of what is told, as people write them: `CHANNEL[:STATE,STATE]`, states or phases, in upper
or lower case. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from stado.core.notices import ENDS, check_rules, rule_of
from stado.core.phases import state_named
from stado.core.states import NotifyOn, State
from stado.errors import Refused


def parse_rules(texts: Iterable[str]) -> list[str]:
    """As they are stored. Raises `Refused`, naming the value and the remedy."""
    return check_rules([_parse(text) for text in texts])


def _parse(text: str) -> str:
    channel, colon, words = text.partition(":")
    return rule_of(channel, [_word(typed) for typed in words.split(",")] if colon else ENDS)


def _word(typed: str) -> NotifyOn:
    state = state_named(typed)
    word = typed.lower() if state is None else state.value
    if word not in set(NotifyOn) or state is State.QUEUED:
        raise Refused(
            "notify_invalid", f"nobody is told of {typed!r}: there is {', '.join(NotifyOn)}"
        )
    return NotifyOn(word)
