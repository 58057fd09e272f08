"""From what NVIDIA's driver says to accelerators. Pure.

A card that was once seen is never left out: it ails, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stado.ports import Accelerator, AcceleratorProcess

Cards = Mapping[str, Accelerator]
"""By id, in the driver's order."""

_UUID = re.compile(r"[!-~]{1,96}")
_PART_PREFIX = "MIG-"
_NAMELESS_PREFIX = "unknown-"
_UNKNOWN_KIND = "unknown"
_KIND_MAX = 64
_BRANDS = re.compile(r"\A(nvidia|tesla|geforce)\b[ -]*")
_NO_KIND_LETTERS = re.compile(r"[^a-z0-9.+]+")


def kind_of(name: str) -> str:
    """A model's name as a word: of "NVIDIA A100-SXM4-80GB" `a100-sxm4-80gb`."""
    rest = name.lower().strip()
    while (brand := _BRANDS.match(rest)) is not None:
        rest = rest[brand.end() :]
    return _NO_KIND_LETTERS.sub("-", rest)[:_KIND_MAX].strip("-.+") or _UNKNOWN_KIND


def cards_after(known: Cards, answer: Mapping[str, Any]) -> Cards:
    """What there is by an answer of the probe that has `cards`, for who knew these before."""
    present = set(answer["present"])
    found: dict[str, Accelerator] = {}
    for facts in answer["cards"]:
        for card in _cards_of(facts, known, present):
            found[card.uuid] = card
    for uuid, card in known.items():
        if uuid not in present | found.keys() and _is_whole(uuid):
            found[uuid] = replace(card, ailment="its driver no longer lists it: reboot the host")
    return found


def all_ailing(known: Cards, why: str) -> Cards:
    return {uuid: replace(card, ailment=why) for uuid, card in known.items()}


def _cards_of(facts: Mapping[str, Any], known: Cards, present: set[str]) -> list[Accelerator]:
    """Of one that does not even say who it is: who had its place before."""
    if facts["uuid"] is not None and _UUID.fullmatch(facts["uuid"]):
        return [_card(facts["uuid"], facts, known)]
    ailment = facts["ailment"] or "its driver gives it no name"
    place = facts["index"]
    before = [c for c in known.values() if c.index == place and c.uuid not in present]
    if before:
        return [replace(card, ailment=ailment) for card in before]
    nameless = f"{_NAMELESS_PREFIX}{place}"
    return [replace(_card(nameless, facts, known), ailment=ailment)]


def _card(uuid: str, facts: Mapping[str, Any], known: Cards) -> Accelerator:
    """One that stopped in the middle of its answers keeps the name and size that it had."""
    before = known.get(uuid)
    kind, total = kind_of(facts["name"]), facts["total"]
    if before is not None:
        kind = before.kind if kind == _UNKNOWN_KIND else kind
        total = total or before.vram_total_mib
    processes = facts["processes"]
    return Accelerator(
        uuid=uuid,
        kind=kind,
        index=facts["index"],
        vram_total_mib=total,
        vram_used_mib=facts["used"],
        vram_free_mib=facts["free"],
        utilisation=facts["utilisation"],
        processes=None
        if processes is None
        else tuple(AcceleratorProcess(pid, mib) for pid, mib in processes),
        ailment=facts["ailment"],
    )


def _is_whole(uuid: str) -> bool:
    """Parts come and go as people divide a card."""
    return not uuid.startswith((_PART_PREFIX, _NAMELESS_PREFIX))
