"""What operators say to one host: read, and changed by compare-and-swap."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.host_labels import labels_over, parse_changes
from stado.core.records import HostOrder
from stado.errors import Refused, Unreadable
from stado.jobs.host_orders import (
    OrdersRead,
    close_host,
    find_orders,
    label_host,
    open_host,
    release_host,
)
from stado.storage.observe import Operation
from tests.jobs.actors import Actor, GuardedStore
from tests.jobs.world import World

NAME = "local@host-a"


def test_a_host_is_closed_opened_labelled_and_released(world: World) -> None:
    assert find_orders(world.repo, NAME) is None
    closed = close_host(world.repo, NAME, HostOrder.DRAIN, by="ada", reason="new driver")
    assert closed.closing is not None
    assert (closed.closing.order, closed.closing.by, closed.closing.reason) == (
        *(HostOrder.DRAIN, "ada"),
        "new driver",
    )
    label_host(world.repo, NAME, {"zone": "a", "rack": "7"}, by="bob")
    label_host(world.repo, NAME, {"rack": None, "row": "2"}, by="bob")
    release_host(world.repo, NAME, by="cyd")
    opened = open_host(world.repo, NAME, by="ada")
    assert find_orders(world.repo, NAME) == opened
    assert (opened.closing, opened.labels) == (None, {"zone": "a", "row": "2"})
    assert opened.release is not None
    assert opened.release.by == "cyd"


@pytest.mark.parametrize("stopped_after", range(4))
@pytest.mark.parametrize("there", [False, True], ids=["none", "one"])
def test_of_two_changes_at_once_both_have_their_effect(
    world: World, stopped_after: int, there: bool
) -> None:
    if there:
        release_host(world.repo, NAME, by="cyd")
    slow = Actor(
        world.store,
        lambda store: close_host(
            world.repo_over(store), NAME, HostOrder.CORDON, by="ada", reason=None
        ),
    )
    slow.step(stopped_after)
    label_host(world.repo, NAME, {"zone": "a"}, by="bob")
    slow.finish()
    assert slow.error is None
    found = find_orders(world.repo, NAME)
    assert found is not None
    assert found.closing is not None
    assert found.labels == {"zone": "a"}


def test_a_document_that_cannot_be_read_is_not_written_over(world: World) -> None:
    world.store.create(keys.host_orders(NAME), b"nonsense")
    with pytest.raises(Unreadable):
        open_host(world.repo, NAME, by="ada")
    assert world.store.get(keys.host_orders(NAME)).data == b"nonsense"


def test_what_has_not_changed_is_not_sent_again(world: World) -> None:
    """And what somebody removed says nothing any more."""
    asked: list[Operation] = []
    store = GuardedStore(world.store, before=lambda operation, _: asked.append(operation))
    read = OrdersRead(world.repo_over(store), NAME)
    assert [read.look(), read.look()] == [False, False]
    close_host(world.repo, NAME, HostOrder.CORDON, by="ada", reason=None)
    assert [read.look(), read.look()] == [True, False]
    assert read.orders is not None
    world.store.delete(keys.host_orders(NAME), None)
    assert [read.look(), read.look()] == [True, False]
    assert read.orders is None
    assert asked == [Operation.GET] * 6


def test_a_host_has_so_many_labels_at_most(world: World) -> None:
    label_host(world.repo, NAME, {f"k{number}": "v" for number in range(16)}, by="ada")
    label_host(world.repo, NAME, {"k1": "w"}, by="ada")
    with pytest.raises(Refused, match=r"would have 17 labels, and 16 can be"):
        label_host(world.repo, NAME, {"one-more": "v"}, by="ada")


def test_labels_as_people_write_them() -> None:
    assert parse_changes(["zone=a", "rack-"]) == {"zone": "a", "rack": None}
    for text in ("zone", "Zone=a", "zone=", "=a", "zone=a b", "zone=\x1b", "z" * 64 + "=a"):
        with pytest.raises(Refused, match="must be KEY=VALUE"):
            parse_changes([text])


def test_what_operators_say_of_a_key_counts_alone() -> None:
    own = ["zone=a", "zone=b", "rack=7"]
    assert labels_over(own, {}) == ["rack=7", "zone=a", "zone=b"]
    assert labels_over(own, {"zone": "c"}) == ["rack=7", "zone=c"]
    many = [f"k{number}=v" for number in range(80)]
    assert len(labels_over(many, {"zone": "c"})) == 64
