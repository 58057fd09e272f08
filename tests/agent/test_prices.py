"""What jobs cost on a host that has a price."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core.admission import Card
from stado.core.order import Needs, needs_of
from stado.core.spec import Spec
from stado.core.states import State
from stado.core.usage import parse_use
from stado.jobs.host_orders import price_host
from stado_agent.places import order_of, part_of_host, place_for, place_of
from tests.agent.test_agent import NAME, Host
from tests.agent.test_room import card

BEAT = 20


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def needs(**fields: object) -> Needs:
    return needs_of(Spec(command="true", **fields))  # type: ignore[arg-type]


def cards(*uuids: str) -> list[Card]:
    return [Card(uuid, "a100", 1000, 1000) for uuid in uuids]


def test_the_parts_of_a_host_are_one_host_at_most() -> None:
    """R223: whole cards, half ones, none, and a host that a job has for itself."""
    whole = part_of_host(needs(gpus=1), cards("a"), cards=4, cpu_milli=8000)
    half = part_of_host(needs(vram_gb=500 / 1024), cards("b"), cards=4, cpu_milli=8000)
    without = part_of_host(needs(cpu=4), [], cards=4, cpu_milli=8000)
    assert (whole, half, without) == (0.25, 0.125, 0.0)
    assert part_of_host(needs(cpu=2), [], cards=0, cpu_milli=8000) == 0.25
    assert part_of_host(needs(cpu=1, exclusive=True), [], cards=4, cpu_milli=8000) == 1.0


@pytest.mark.parametrize("price", [None, 2.5])
def test_a_supervisor_is_told_the_price(price: float | None) -> None:
    place = place_for(
        needs(gpus=1),
        cards("a"),
        facts=frozenset(),
        price_milli=0,
        price_per_hour=price,
        part=0.5,
        machine_type=None,
    )
    assert place_of(order_of(place)) == place
    assert place.price_micro == (None if price is None else 2_500_000)
    assert place.part_micro == 500_000


def test_a_job_bears_its_part_of_what_its_host_costs(host: Host) -> None:
    """R223: as its owner states it when the job is claimed, and not as it is later."""
    host.hardware.devices = [card("GPU-a"), card("GPU-b")]
    host.script(100)
    (unpriced,) = host.submit("true", gpus=1)
    host.step_until_at_rest(unpriced)
    price_host(host.world.repo, NAME, 3.0, by="ada")
    host.step_for(3 * BEAT)
    assert host.capacity().price_per_hour == 3.0
    (job,) = host.submit("true", gpus=1)
    host.step_until_at_rest(job)
    price_host(host.world.repo, NAME, None, by="ada")
    host.step_for(3 * BEAT)
    assert host.capacity().price_per_hour is None
    found = {}
    for key in host.world.names("usage/"):
        use = parse_use(key.rpartition("/")[2])
        assert use is not None
        found[use.job_id] = (use.price_micro, use.part_micro, use.consumer)
    assert found == {unpriced: (None, 500_000, NAME), job: (3_000_000, 500_000, NAME)}
    holder = host.world.record(State.COMPLETED, job).holder
    assert holder is not None
    assert (holder.price_micro, holder.part_micro) == (3_000_000, 500_000)
