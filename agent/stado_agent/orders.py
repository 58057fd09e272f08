"""What operators say to this host, as its agent goes by it: looked at with each broadcast.

What is not known is not guessed: nothing is claimed until it could be read once. Later, what was
read last holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from stado.core import keys
from stado.core.records import Hindrance, HostClosing, HostOrder, HostOrders
from stado.errors import StoreError, Unreadable
from stado.jobs.host_orders import OrdersRead
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)


class Orders:
    """`now` gives the instant for people."""

    def __init__(self, repo: Repository, consumer: str, *, now: Callable[[], datetime]) -> None:
        self._read = OrdersRead(repo, consumer)
        self._consumer = consumer
        self._now = now
        self._known = False
        self._ailing = False
        self._unknown: Hindrance | None = None

    @property
    def orders(self) -> HostOrders | None:
        return self._read.orders

    def look(self) -> None:
        """A store that does not tell costs a line an outage."""
        try:
            changed = self._read.look()
        except (StoreError, Unreadable) as error:
            self._note_failure(error)
            return
        self._known, self._ailing, self._unknown = True, False, None
        if changed:
            log.info("event=orders_changed closing=%s", self._closing and self._closing.order)

    def hindrance(self, *, busy: bool) -> Hindrance | None:
        """`busy`: jobs run here."""
        closing = self._closing
        return self._unknown if closing is None else closed_by(closing, self._consumer, busy=busy)

    @property
    def overdue(self) -> HostClosing | None:
        """The closing, once what runs here is to go."""
        closing = self._closing
        if closing is None or closing.deadline_at is None or self._now() < closing.deadline_at:
            return None
        return closing

    @property
    def _closing(self) -> HostClosing | None:
        return self._read.orders.closing if self._read.orders is not None else None

    def _note_failure(self, error: Exception) -> None:
        if not self._ailing:
            log.warning("event=orders_unknown error=%r", str(error))
        self._ailing = True
        if not self._known and self._unknown is None:
            detail = (
                f"what operators say to this host cannot be read: {error}: mend "
                f"{keys.host_orders(self._consumer)}, or let this agent read it"
            )
            self._unknown = Hindrance(code="orders_unknown", detail=detail, since=self._now())


def closed_by(closing: HostClosing, consumer: str, *, busy: bool) -> Hindrance:
    """As it is told, with the remedy."""
    code = "cordoned"
    if closing.order is HostOrder.DRAIN:
        code = "draining" if busy else "drained"
    why = f" ({closing.reason})" if closing.reason else ""
    remedy = f"`stado hosts uncordon {consumer}` lets it take jobs again"
    until = ""
    if closing.deadline_at is not None and busy:
        until = f"; what still runs there at {closing.deadline_at:%Y-%m-%d %H:%M:%SZ} is put back"
    detail = f"{closing.by} has closed it{why}{until}: {remedy}"
    return Hindrance(code=code, detail=detail, since=closing.at)
