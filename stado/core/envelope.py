"""What a job asks of the host that is to run it: its accelerators, its disk, and what kind of host
it has to be.

A host has *facts*, words such as `host:lab-7` or `label:zone=a`; a job requires some of them. Cards
are asked for by a name that is a part of theirs. Both go into the names of the queue's index as
short codes, so that a listing says who fits; the record decides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from stado.errors import Refused

if TYPE_CHECKING:
    from stado.core.spec import Spec

GPUS_MAX = 64
PROVIDER_DEFAULT = "local"
"""Of machines that are somebody's own."""
LABELS_MAX = 4
HOST_LABELS_MAX = 64
YIELDS_MAX = 1000
PRICE_MAX = 1e5
RUNTIME_SECONDS_MAX = 3660 * 86_400

CODE_LENGTH = 5
"""Twenty-five bits of a word: two that meet cost a look at the record, no more."""

_KIND_WORDS_MAX = 6
_LABEL = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}=[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,99}")
_MAKERS = frozenset({"nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct"})
"""What nobody names a card by."""


class Spot(StrEnum):
    """Whether a machine that can be taken away at any moment will do."""

    NEVER = "never"
    ALLOW = "allow"
    REQUIRE = "require"


Gpus = Annotated[int, msgspec.Meta(ge=1, le=GPUS_MAX)]
Label = Annotated[str, msgspec.Meta(pattern=rf"\A{_LABEL.pattern}\Z")]
Labels = Annotated[list[Label], msgspec.Meta(max_length=LABELS_MAX)]
HostWord = Annotated[str, msgspec.Meta(pattern=rf"\A{_WORD.pattern}\Z")]
"""Name of a worker, a provider, a machine type, a group."""

KindWord = Annotated[str, msgspec.Meta(pattern=rf"\A{_KIND.pattern}\Z")]
ModelWord = Annotated[str, msgspec.Meta(pattern=rf"\A{_MODEL.pattern}\Z")]
Price = Annotated[float, msgspec.Meta(gt=0, lt=PRICE_MAX)]
"""Dollars an hour."""

Yields = Annotated[int, msgspec.Meta(ge=0, le=YIELDS_MAX)]
RuntimeSeconds = Annotated[int, msgspec.Meta(ge=1, le=RUNTIME_SECONDS_MAX)]


def group_code(group: str) -> str:
    """That stands for a group in the names of the queue's index."""
    return code_of(f"group:{group}")


def is_host_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None


def code_of(word: str) -> str:
    """Five letters and digits that stand for a word."""
    value = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4])
    digits = "abcdefghijklmnopqrstuvwxyz234567"
    return "".join(digits[value >> (5 * place) & 31] for place in range(CODE_LENGTH))


def _kind_words(text: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [word for word in words if word not in _MAKERS][:_KIND_WORDS_MAX]


def kind_code(asked: str) -> str:
    """What people call a card, however they write it: `A100`, `a100-80gb`, `rtx4090`."""
    return code_of("".join(_kind_words(asked)))


@lru_cache(maxsize=64)
def kind_codes(kind: str) -> frozenset[str]:
    """By which a card is found: any of the words of its name, in their order."""
    words = _kind_words(kind)
    chosen = (combinations(words, count) for count in range(1, len(words) + 1))
    return frozenset(code_of("".join(some)) for of_count in chosen for some in of_count)


def host_facts(
    *,
    consumer: str,
    machine_type: str | None,
    provider: str,
    spot: bool,
    labels: Iterable[str],
) -> Iterator[str]:
    """All that can be required of a host, of this one."""
    yield f"host:{consumer}"
    yield f"provider:{provider}"
    yield f"spot:{'yes' if spot else 'no'}"
    if machine_type is not None:
        yield f"machine:{machine_type}"
    for label in labels:
        yield f"label:{label}"


def required_facts(spec: Spec) -> Iterator[str]:
    """What the job's host has to be."""
    if spec.pinned_host is not None:
        yield f"host:{spec.pinned_host}"
    if spec.pin_provider and spec.provider is not None:
        yield f"provider:{spec.provider}"
    if spec.spot is not Spot.ALLOW:
        yield f"spot:{'yes' if spec.spot is Spot.REQUIRE else 'no'}"
    if spec.machine_type is not None:
        yield f"machine:{spec.machine_type}"
    for label in spec.labels:
        yield f"label:{label}"


@lru_cache(maxsize=4096)
def fact_codes(facts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(code_of(fact) for fact in facts)


def parse_gpus(text: str) -> tuple[int, str | None]:
    """`2`, `a100` or `a100:2`: how many whole cards, and of which kind. Raises `Refused`."""
    name, colon, number = text.rpartition(":")
    if not colon:
        name, number = ("", text) if text.isdigit() else (text, "1")
    count = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    is_named = text.isdigit() or _KIND.fullmatch(name) is not None
    if not is_named or not 1 <= count <= GPUS_MAX:
        raise Refused(
            "gpus_invalid",
            f"gpus {text!r} must be a number of cards from 1 to {GPUS_MAX}, the name of a kind, or "
            "both: 2, a100, a100:2",
        )
    return count, name or None


def with_cards(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields of a spec, with cards that were asked for in one word taken apart. Raises
    `Refused`."""
    asked = stated.get("gpus")
    if asked in ("0", 0):  # none, as if nothing was said: what a profile says is taken back so
        return {**stated, "gpus": None}
    if not isinstance(asked, str):
        return dict(stated)
    count, kind = parse_gpus(asked)
    if kind is not None and stated.get("gpu_type") is not None:
        raise Refused(
            "gpus_invalid",
            f"gpus {asked!r} names a kind, and gpu-type {stated['gpu_type']!r} another: state one",
        )
    return {**stated, "gpus": count, "gpu_type": kind or stated.get("gpu_type")}


def check_envelope(spec: Spec) -> None:
    """Raises `Refused` for what no host can be asked."""
    _check_cards(spec)
    _check_whole("runtime-seconds-estimate", spec.runtime_seconds_estimate, RUNTIME_SECONDS_MAX)
    for name, word in (
        ("pinned-host", spec.pinned_host),
        ("provider", spec.provider),
        ("machine-type", spec.machine_type),
        ("group", spec.group),
        ("workload-kind", spec.workload_kind),
    ):
        check_word(name, word)
    _check_labels(spec.labels)
    if spec.model is not None and not _MODEL.fullmatch(spec.model):
        raise Refused(
            "model_invalid", f"model {spec.model!r} must be 1 to 100 characters of a name"
        )
    if spec.pin_provider and spec.provider is None:
        raise Refused("provider_missing", "pin-provider needs a provider: state --provider NAME")
    if spec.max_yields is not None and not spec.yieldable:
        raise Refused("yieldable_missing", "max-yields is for jobs that yield: state --yieldable")
    cap = spec.max_cost_per_hour
    if cap is not None and not 0 < cap < PRICE_MAX:
        raise Refused(
            "max-cost-per-hour_not_positive",
            f"max-cost-per-hour {cap} must be a positive number of dollars",
        )


def _check_cards(spec: Spec) -> None:
    if spec.gpus is not None and (type(spec.gpus) is not int or not 1 <= spec.gpus <= GPUS_MAX):
        raise Refused("gpus_invalid", f"gpus {spec.gpus!r} must be from 1 to {GPUS_MAX}")
    if spec.gpu_type is not None and not (
        _KIND.fullmatch(spec.gpu_type) and _kind_words(spec.gpu_type)
    ):
        raise Refused(
            "gpu_type_invalid",
            f"gpu-type {spec.gpu_type!r} must be the name of a kind of card, such as a100",
        )


def _check_whole(name: str, value: int | None, most: int) -> None:
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise Refused(
            f"{name.replace('-', '_')}_invalid", f"{name} {value!r} must be a positive whole number"
        )


def check_word(name: str, word: str | None) -> None:
    """Raises `Refused` for what is no name."""
    if word is not None and not _WORD.fullmatch(word):
        raise Refused(
            f"{name.replace('-', '_')}_invalid",
            f"{name} {word!r} must be 1 to 100 letters, digits and . _ @ + -",
        )


def check_host_words(
    *, machine_type: str | None, provider: str | None, labels: Iterable[str]
) -> None:
    """What the owner of a host says of it. Raises `Refused`."""
    check_word("machine-type", machine_type)
    check_word("provider", provider)
    for label in labels:
        check_label(label)


def _check_labels(labels: list[str]) -> None:
    if len(labels) > LABELS_MAX:
        raise Refused(
            "labels_too_many", f"{len(labels)} labels are required, and {LABELS_MAX} can be"
        )
    for label in labels:
        check_label(label)


def check_label(label: str) -> None:
    """Raises `Refused` unless it is `KEY=VALUE`."""
    if not _LABEL.fullmatch(label):
        raise Refused(
            "label_invalid",
            f"label {label!r} must be KEY=VALUE, such as zone=a: the key of small letters, digits "
            "and . _ - /, the value of letters, digits and . _ -",
        )
