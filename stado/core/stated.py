"""What jobs are, as programs and files state it: the options of `stado submit` under their long
names, with `_` for `-`, and values of plain types. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stado.core.envelope import Spot
from stado.core.inputs import parse_wanted
from stado.core.notice_words import parse_rules
from stado.core.pipelines import parse_step
from stado.core.tags import tag_list

FIELDS: Mapping[str, str] = {
    "timeout": "timeout_seconds",
    "idle_timeout": "idle_timeout_seconds",
    "retry_delay": "retry_delay_seconds",
    "env": "environment",
    "secret_env": "secrets",
    "expect_output": "expected_outputs",
    "tag": "tags",
    "label": "labels",
    "start_from": "start_from_ref",
    "input_artifact": "input_artifacts",
    "after": "after_refs",
    "then_checkpoint": "then_from",
}
"""Of options that are kept under another name."""

UNLIMITED = "unlimited"

_LISTED: Mapping[str, Callable[[list[Any]], Any]] = {
    "after": tuple,
    "tag": tag_list,
    "label": list,
    "notify": parse_rules,
    "expect_output": list,
    "retry_on": list,
}
_MAPPED = ("env", "secret_env", "input_artifact", "then")


def stated_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same under the names of the spec, and of what has to be pinned first; None is nothing
    stated. Raises `TypeError` for what would be taken for another type, `Refused` for words that
    cannot be read. Other types are looked at when a spec is made of it."""
    return {
        FIELDS.get(name, name): _read(name, value)
        for name, value in options.items()
        if value is not None
    }


def _read(name: str, value: Any) -> Any:
    """As the command line has it, once it has read it."""
    if name == "max_lease_losses" and value == UNLIMITED:
        return -1
    if name == "spot" and isinstance(value, bool):
        return Spot.REQUIRE if value else Spot.NEVER
    if name in _MAPPED and not isinstance(value, Mapping):
        raise TypeError(f"{name} is a mapping of names, not a {type(value).__name__}")
    if name == "input_artifact":
        return tuple(parse_wanted(f"{key}={reference}") for key, reference in value.items())
    if name == "then":
        return [parse_step(f"{step}={command}") for step, command in value.items()]
    if name in _LISTED:
        return _LISTED[name](_texts(name, value))
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    return dict(value) if isinstance(value, Mapping) else value


def _texts(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        raise TypeError(f"{name} is a list of strings, such as [{value!r}]")
    return list(value)
