"""What is told of a job, and on which channels: the rules of it. Pure.

A channel is a name. Which URL or program is behind it, the coordinator's owner has said in a
configuration of its own: nothing that a store holds is executed, or says where to connect to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from stado.core.states import NotifyOn
from stado.errors import Refused

RULES_MAX = 8
CHANNEL_PATTERN = r"[a-z0-9][a-z0-9_-]{0,39}"
_WORDS = "|".join(NotifyOn)
_RULE_PATTERN = rf"({CHANNEL_PATTERN}):((?:{_WORDS})(?:,(?:{_WORDS})){{0,{len(NotifyOn) - 1}}})"

Rule = Annotated[str, msgspec.Meta(pattern=rf"\A{_RULE_PATTERN}\Z")]
"""`<channel>:<word>,<word>...`."""

Rules = Annotated[list[Rule], msgspec.Meta(max_length=RULES_MAX)]

ENDS = (NotifyOn.COMPLETED, NotifyOn.FAILED, NotifyOn.CANCELLED, NotifyOn.TIMED_OUT)
"""What is told where a rule does not say."""


def channels_for(rules: Iterable[str], word: NotifyOn) -> list[str]:
    """The channels on which this is told: each once, in order."""
    split = (rule.partition(":") for rule in rules)
    return sorted({channel for channel, _, words in split if word.value in words.split(",")})


def check_rule(text: str) -> str:
    """A rule as it is stored, each word once. Raises `Refused`."""
    found = re.fullmatch(_RULE_PATTERN, text)
    if found is None:
        raise Refused(
            "notify_invalid",
            f"notify {text!r} must be CHANNEL:WORD,WORD, such as team:failed,timed_out; a "
            f"channel has a-z, 0-9, _ and -, the words are {', '.join(NotifyOn)}",
        )
    return rule_of(found[1], [NotifyOn(word) for word in found[2].split(",")])


def rule_of(channel: str, words: Iterable[NotifyOn]) -> str:
    wanted = set(words)
    return f"{channel}:{','.join(word for word in NotifyOn if word in wanted)}"


def check_rules(rules: list[str]) -> list[str]:
    """Rules as they are stored: a channel once. Raises `Refused`."""
    checked = sorted(check_rule(rule) for rule in rules)
    channels = [rule.partition(":")[0] for rule in checked]
    twice = next((one for one in channels if channels.count(one) > 1), None)
    if twice is not None:
        raise Refused("notify_twice", f"channel {twice} is named twice: name it once, all words")
    if len(checked) > RULES_MAX:
        raise Refused(
            "notify_invalid", f"{len(checked)} channels, and at most {RULES_MAX} are taken"
        )
    return checked
