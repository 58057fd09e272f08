"""What operators say to one host: read by its agent, changed from anywhere.

Nothing here touches a running job. A document that cannot be read is not written over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import (
    LABELS_SAID_MAX,
    HostClosing,
    HostOrder,
    HostOrders,
    HostRelease,
)
from stado.errors import Conflict, NotFound, NotModified, Refused
from stado.jobs.health import AgentSight, AgentState
from stado.jobs.repository import Repository
from stado.storage.port import Version

_NAMED_MAX = 5


def find_orders(repo: Repository, consumer: str) -> HostOrders | None:
    """None: nobody has said anything. One read. Raises `Unreadable`."""
    found = repo.find(HostOrders, keys.host_orders(consumer))
    return None if found is None else found.value


class OrdersRead:
    """Those for one host, for who looks again and again: what has not changed is not sent again."""

    def __init__(self, repo: Repository, consumer: str) -> None:
        self._repo = repo
        self._key = keys.host_orders(consumer)
        self._version: Version | None = None
        self.orders: HostOrders | None = None
        """As they were read last; None: none, or none read yet."""

    def look(self) -> bool:
        """Whether they have changed. One conditional read. Raises `Unreadable`, and what a store
        raises; then what was read last stays."""
        try:
            blob = self._repo.store.get(self._key, unless=self._version)
        except NotModified:
            return False
        except NotFound:
            changed = self.orders is not None
            self.orders, self._version = None, None
            return changed
        self.orders = decode(HostOrders, self._key, blob.data)
        self._version = blob.version
        return True


# --- changes --------------------------------------------------------------------------------


def close_host(
    repo: Repository,
    consumer: str,
    order: HostOrder,
    *,
    by: str,
    reason: str | None,
    deadline_seconds: int | None = None,
) -> HostOrders:
    """It takes no more jobs from its next look on, and after so long puts back what still runs
    there; None: that goes on. What was said before is replaced."""
    now = repo.now()
    deadline_at = None if deadline_seconds is None else now + timedelta(seconds=deadline_seconds)
    closing = HostClosing(order=order, by=by, at=now, reason=reason, deadline_at=deadline_at)
    return _change(repo, consumer, lambda orders: orders.evolve(closing=closing), by=by)


def open_host(repo: Repository, consumer: str, *, by: str) -> HostOrders:
    """It may take jobs again."""
    return _change(repo, consumer, lambda orders: orders.evolve(closing=None), by=by)


def release_host(repo: Repository, consumer: str, *, by: str) -> HostOrders:
    """Whatever quarantine it is in is over."""
    release = HostRelease(by=by, at=repo.now())
    return _change(repo, consumer, lambda orders: orders.evolve(release=release), by=by)


def label_host(
    repo: Repository, consumer: str, changes: Mapping[str, str | None], *, by: str
) -> HostOrders:
    """`changes`: value by key; None takes back what operators have said. Raises `Refused` for more
    labels than a host can have."""

    def labelled(orders: HostOrders) -> HostOrders:
        merged: dict[str, str | None] = {**orders.labels, **changes}
        labels = {key: value for key, value in merged.items() if value is not None}
        if len(labels) > LABELS_SAID_MAX:
            raise Refused(
                "labels_too_many",
                f"{consumer} would have {len(labels)} labels, and {LABELS_SAID_MAX} can be: "
                "take one back with KEY-",
            )
        return orders.evolve(labels=labels)

    return _change(repo, consumer, labelled, by=by)


def price_host(
    repo: Repository, consumer: str, price_per_hour: float | None, *, by: str
) -> HostOrders:
    """What it costs, in dollars, for jobs that are claimed from then on; None: what its agent was
    started with."""
    return _change(
        repo, consumer, lambda orders: orders.evolve(price_per_hour=price_per_hour), by=by
    )


def _change(
    repo: Repository, consumer: str, change: Callable[[HostOrders], HostOrders], *, by: str
) -> HostOrders:
    """Of two changes at once both have their effect. Raises `Unreadable`."""
    key = keys.host_orders(consumer)
    for _ in repo.rounds():
        fresh = HostOrders(
            consumer=consumer, nonce=repo.entropy.token(), changed_at=repo.now(), changed_by=by
        )
        found = repo.find(HostOrders, key)
        if found is None:
            orders = change(fresh)
            if repo.create(key, orders) is not None:
                return orders
            continue
        orders = change(found.value).evolve(
            nonce=fresh.nonce, changed_at=fresh.changed_at, changed_by=by
        )
        try:
            repo.store.replace(key, orders.encode(), found.version)
            return orders
        except Conflict:
            continue
    raise Conflict(key, "others keep changing it: try again")


def forget_host(
    repo: Repository, consumer: str, sight: AgentSight | None, held: Sequence[str]
) -> None:
    """A host that is gone for good: its report, and what operators have said to it. `held`: jobs
    that run under its name. Raises `Refused` for one that is there, or has jobs.

    A crash between the two leaves what was said, which harms nobody; an agent that is there after
    all reports again."""
    if sight is not None and sight.state not in (AgentState.STALE, AgentState.STOPPED):
        raise Refused("host_at_work", f"{consumer} is {sight.word}: stop its agent, then forget it")
    if held:
        raise Refused(
            "host_has_jobs",
            f"{held[0]} is still running under the name of {consumer}: a coordinator gives it back "
            "when its lease is over; then forget the host",
        )
    repo.store.delete(keys.capacity(consumer), None)
    repo.store.delete(keys.host_orders(consumer), None)


# --- which host is meant --------------------------------------------------------------------


def consumer_named(repo: Repository, name: str, sights: Sequence[AgentSight]) -> str:
    """The agent's name in the store: of that name, or the only one on a host of that name or with
    it behind its `@`; one that has no report counts where operators have said something to it.
    Raises `Refused`."""
    consumers = [sight.capacity.consumer for sight in sights]
    if name in consumers:
        return name
    on_host = [
        one.capacity.consumer
        for one in sights
        if name in (one.capacity.host, one.capacity.consumer.partition("@")[2])
    ]
    if len(on_host) == 1:
        return on_host[0]
    if len(on_host) > 1:
        raise Refused(
            "host_ambiguous", f"{len(on_host)} agents are on {name}: name one: {_some(on_host)}"
        )
    if find_orders(repo, name) is not None:
        return name
    raise Refused("host_unknown", f"no agent {name!r} has reported{_meant(name, consumers)}")


def _meant(name: str, consumers: Sequence[str]) -> str:
    close = get_close_matches(name, consumers, n=3, cutoff=0.5)
    if close:
        return f": did you mean {' or '.join(close)}?"
    return f": there is {_some(consumers)}" if consumers else ": no host is there yet"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
