"""What a job asks of its host beside cores and memory, for people."""

from __future__ import annotations

from stado.cli.render import plural
from stado.core.admission import cards_asked
from stado.core.durations import duration_text
from stado.core.envelope import Spot
from stado.core.order import needs_of
from stado.core.records import Record
from stado.core.spec import Spec


def envelope_words(record: Record) -> dict[str, str | None]:
    """By what it is about; None where the job does not care."""
    spec = record.spec
    return {
        "cards": _cards(spec),
        "disk": None if spec.disk_gb is None else f"{spec.disk_gb:g} GiB",
        "host": _host(spec),
        "price": _price(spec),
        "model": spec.model,
        "takes": _takes(spec),
        "group": spec.group,
        "array": _array(spec),
        "yields": _yields(record),
    }


def _cards(spec: Spec) -> str | None:
    needs = needs_of(spec)
    if not needs.uses_cards:
        return None
    return cards_asked(needs) if spec.gpu_type is None else f"{cards_asked(needs)}, {spec.gpu_type}"


def _host(spec: Spec) -> str | None:
    spot = {Spot.NEVER: "no spot machine", Spot.REQUIRE: "a spot machine", Spot.ALLOW: None}
    only = "only " if spec.pin_provider else "rather "
    said = [
        None if spec.pinned_host is None else f"{spec.pinned_host} alone",
        "to itself" if spec.exclusive else None,
        None if spec.machine_type is None else f"a {spec.machine_type}",
        *spec.labels,
        None if spec.provider is None else f"{only}of {spec.provider}",
        spot[spec.spot],
    ]
    return ", ".join(words for words in said if words) or None


def _array(spec: Spec) -> str | None:
    if spec.array is None:
        return None
    at_a_time = spec.array.at_a_time
    most = "" if at_a_time is None else f"; {at_a_time:,} of it at a time"
    return f"index {spec.array.index}{most}"


def _price(spec: Spec) -> str | None:
    cap = spec.max_cost_per_hour
    return None if cap is None else f"at most ${cap:g} an hour"


def _takes(spec: Spec) -> str | None:
    seconds = spec.runtime_seconds_estimate
    return None if seconds is None else f"{duration_text(seconds)}, as was stated"


def _yields(record: Record) -> str | None:
    spec = record.spec
    if not spec.yieldable:
        return None
    if not spec.max_yields:
        return "never: how often was not stated"
    return f"{record.yields_left} of {plural(spec.max_yields, 'time')} left"
