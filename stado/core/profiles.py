"""Submit profiles: options of `stado submit` under a name, kept in a file for use again. Pure.

A profile is a JSON object. Its fields are the options by their long names with `_` for `-`, and
`command` and `description`. It is looked at by itself, all of it, before any of it counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from stado.core.durations import DURATION_FORM, parse_duration
from stado.core.envelope import parse_gpus
from stado.core.stated import UNLIMITED
from stado.errors import Refused

PROFILE_BYTES_MAX = 1024 * 1024
PROFILE_SUFFIX = ".json"
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_CODE = "profile_invalid"
_KIND_CODE = "workload_kind_invalid"


class _Kind(NamedTuple):
    """What a field may be: in words, and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_named_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_duration(value: Any) -> bool:
    return parse_duration(str(value)) is not None if type(value) in (int, str) else False


def _is_instant(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


_TEXT = _Kind("text", lambda value: isinstance(value, str))
_TEXTS = _Kind('a list of texts, such as ["a", "b"]', _is_texts)
_NAMED_TEXTS = _Kind('an object of texts, such as {"NAME": "value"}', _is_named_texts)
_NUMBER = _Kind("a number", lambda value: type(value) in (int, float))
_WHOLE = _Kind("a whole number", lambda value: type(value) is int)
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_DURATION = _Kind(DURATION_FORM, _is_duration)
_INSTANT = _Kind("an instant of RFC 3339 as text, with a time zone", _is_instant)
_GPUS = _Kind("a number of cards, or text: a100, a100:2", lambda value: type(value) in (int, str))
_LOSSES = _Kind(
    f"a whole number, or {UNLIMITED!r}", lambda value: type(value) is int or value == UNLIMITED
)

OPTIONS: Mapping[str, _Kind] = {
    "priority": _WHOLE,
    "cpu": _NUMBER,
    "memory_gb": _NUMBER,
    "gpus": _GPUS,
    "gpu_type": _TEXT,
    "vram_gb": _NUMBER,
    "disk_gb": _NUMBER,
    "exclusive": _FLAG,
    "pinned_host": _TEXT,
    "label": _TEXTS,
    "machine_type": _TEXT,
    "provider": _TEXT,
    "pin_provider": _FLAG,
    "spot": _FLAG,
    "max_cost_per_hour": _NUMBER,
    "boot_disk_gb": _NUMBER,
    "model": _TEXT,
    "runtime_seconds_estimate": _WHOLE,
    "group": _TEXT,
    "not_before": _INSTANT,
    "yieldable": _FLAG,
    "max_yields": _WHOLE,
    "deadline_at": _INSTANT,
    "timeout": _DURATION,
    "idle_timeout": _DURATION,
    "body_retries": _WHOLE,
    "retries": _WHOLE,
    "retry_on": _TEXTS,
    "retry_delay": _DURATION,
    "final": _FLAG,
    "notify": _TEXTS,
    "max_lease_losses": _LOSSES,
    "terminates_agent": _FLAG,
    "verify": _TEXT,
    "host_dir": _TEXT,
    "pre_command": _TEXT,
    "strict_shell": _FLAG,
    "image": _TEXT,
    "env": _NAMED_TEXTS,
    "secret_env": _NAMED_TEXTS,
    "expect_output": _TEXTS,
    "output_uri": _TEXT,
    "tag": _TEXTS,
    "type": _TEXT,
    "require_checkpoint": _FLAG,
    "start_from": _TEXT,
    "input_artifact": _NAMED_TEXTS,
    "workdir": _TEXT,
    "workdir_limit_mb": _NUMBER,
    "require_clean": _FLAG,
    "repo": _TEXT,
    "repo_ref": _TEXT,
    "repo_workdir": _TEXT,
    "after": _TEXTS,
    "then": _NAMED_TEXTS,
    "then_parallel": _FLAG,
    "then_checkpoint": _TEXT,
    "then_cpu": _NUMBER,
    "then_memory_gb": _NUMBER,
    "then_gpus": _WHOLE,
}
"""All options that say what jobs are."""

_OF_ITS_OWN: Mapping[str, _Kind] = {"command": _TEXT, "description": _TEXT}

_DURATIONS = ("timeout", "idle_timeout", "retry_delay")
_INSTANTS = ("not_before", "deadline_at")
_MERGED = ("env", "secret_env")
_SOURCES: tuple[Collection[str], ...] = (
    ("workdir", "workdir_limit_mb", "require_clean"),
    ("repo", "repo_ref", "repo_workdir"),
    ("host_dir",),
)
"""Where a command runs, in three ways of which a job has one; the first option of each chooses."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that was read: its fields are of their types, and known."""

    name: str
    where: str
    """The file, for people."""
    stated: Mapping[str, Any]
    """All of it, as the file has it."""

    @property
    def description(self) -> str:
        text: str = self.stated.get("description", "")
        return text

    @property
    def command(self) -> str | None:
        return self.stated.get("command")

    @property
    def options(self) -> dict[str, Any]:
        """As a program states them (`stado.core.stated`)."""
        return {
            name: _plain(name, value)
            for name, value in self.stated.items()
            if name not in _OF_ITS_OWN
        }


def _plain(name: str, value: Any) -> Any:
    if name in _DURATIONS:
        return parse_duration(str(value))
    return datetime.fromisoformat(value) if name in _INSTANTS else value


def parse_profile(data: bytes, *, name: str, where: str) -> Profile:
    """Raises `Refused`, naming the file, the field and the remedy."""
    if len(data) > PROFILE_BYTES_MAX:
        _refuse(where, f"it has more than {PROFILE_BYTES_MAX} bytes")
    try:
        stated = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        _refuse(where, f"it is not UTF-8 ({error.reason}): save it as UTF-8")
    except _Twice as error:
        _refuse(where, f"field {error.args[0]!r} stands there twice: state it once")
    except RecursionError:
        _refuse(where, "it has brackets within too many brackets")
    except ValueError as error:
        _refuse(where, f"it is no JSON: {error}")
    if not isinstance(stated, dict):
        _refuse(where, 'it must be one JSON object, such as {"cpu": 4, "gpus": 1}')
    for field, value in stated.items():
        _check_field(where, field, value)
    return Profile(name, where, stated)


class _Twice(Exception):
    """A name that an object has two times, of which a parser would drop one in silence."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


def _check_field(where: str, field: str, value: Any) -> None:
    known = {**OPTIONS, **_OF_ITS_OWN}
    kind = known.get(field)
    if kind is None:
        near = field.replace("-", "_").removeprefix("__")
        close = [near] if near in known else get_close_matches(near, known, n=2)
        meant = f"did you mean {' or '.join(close)}?" if close else "remove it"
        _refuse(where, f"there is no field {field!r}: {meant}")
    if not kind.fits(value):
        # What stands in place of a variable's value or a secret's name may be one.
        shown = "" if field in _MERGED else f", and not {_short(value)}"
        _refuse(where, f"field {field} must be {kind.words}{shown}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _refuse(where: str, flaw: str, *, code: str = _CODE) -> NoReturn:
    raise Refused(code, f"{where}: {flaw}")


def merged(options: Mapping[str, Any], explicit: Mapping[str, Any]) -> dict[str, Any]:
    """A profile's options with those that somebody states besides: these win. Variables and
    secrets do so one by one. In `explicit` None is nothing stated."""
    given = {name: value for name, value in explicit.items() if value is not None}
    kept = remaining(options, given)
    for name in _MERGED:
        if isinstance(given.get(name), Mapping) and name in kept:
            given[name] = {**kept[name], **given[name]}
    return {**kept, **given}


def remaining(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What of a profile's options can count beside those that are given, which win where they are
    the same. It leaves out what a profile says of the same thing by another option: another kind
    of card, or any where none is asked for; another folder to run in; how often something yields
    that is not to; a variable that is a secret, or the other way round."""
    kept = {**options, **_cards(options.get("gpus"))}
    for name in _overruled(given):
        kept.pop(name, None)
    for name, other in (_MERGED, reversed(_MERGED)):
        taken = _names_in(given.get(other))
        if taken and name in kept:
            kept[name] = {key: text for key, text in kept[name].items() if key not in taken}
    return kept


def _names_in(stated: Any) -> set[str]:
    """Of variables, as a mapping, or as they are typed."""
    if isinstance(stated, Mapping):
        return set(stated)
    return {str(one).partition("=")[0] for one in stated or ()}


def _cards(asked: Any) -> dict[str, Any]:
    """Number and kind apart, so that each can be stated otherwise."""
    if not isinstance(asked, str) or asked == "0":
        return {}
    count, kind = parse_gpus(asked)
    return {"gpus": count} if kind is None else {"gpus": count, "gpu_type": kind}


def _overruled(given: Mapping[str, Any]) -> set[str]:
    names: set[str] = set()
    asked = given.get("gpus")
    if isinstance(asked, str) and not asked.isdigit():
        names.add("gpu_type")
    if asked in (0, "0"):
        names.update(("gpu_type", "vram_gb"))
    if given.get("yieldable") is False:
        names.add("max_yields")
    for one in _SOURCES:
        if next(iter(one)) in given:
            names.update(name for other in _SOURCES if other is not one for name in other)
    return names


def check_kind(profile: Profile) -> None:
    """Raises `Refused` unless it is a kind of workload: what it runs and how much room that takes
    is declared, and where it runs is not."""
    for field in ("command", "cpu", "memory_gb"):
        if field not in profile.stated:
            why = "what it runs" if field == "command" else "how much room it takes"
            _refuse(
                profile.where,
                f"field {field} is missing: a kind of workload declares {why}",
                code=_KIND_CODE,
            )
    for field in ("pinned_host", "then", "after"):
        if field in profile.stated:
            _refuse(
                profile.where,
                f"field {field} is not for a kind of workload, which is one job on the host that "
                "is chosen when it is started: remove it",
                code=_KIND_CODE,
            )
