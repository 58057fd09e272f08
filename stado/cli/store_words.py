"""What was asked of the store, in words and as fields of JSON."""

from __future__ import annotations

from typing import Any

from stado.cli import render
from stado.core.records import Ending


def requests_text(dear: int, cheap: int) -> str:
    """`12 writes and listings, 1 read`."""
    return f"{dear:,} writes and listings, {render.plural(cheap, 'read')}"


def traffic_text(received_bytes: int, sent_bytes: int) -> str:
    """`1.2 MB received, 300 bytes sent`."""
    return f"{render.size_text(received_bytes)} received, {render.size_text(sent_bytes)} sent"


def store_text(ending: Ending) -> str | None:
    """None where nothing is known, or nothing was asked that anybody bills."""
    asked = ending.requests
    if asked is None or not asked.dear + asked.cheap:
        return None
    traffic = traffic_text(asked.received_bytes, asked.sent_bytes)
    return f"asked the store for {requests_text(asked.dear, asked.cheap)}: {traffic}"


def store_fields(ending: Ending | None) -> dict[str, Any] | None:
    asked = None if ending is None else ending.requests
    if asked is None:
        return None
    return {
        "writes": asked.dear,
        "reads": asked.cheap,
        "received_bytes": asked.received_bytes,
        "sent_bytes": asked.sent_bytes,
    }
