"""What the outputs of ended jobs take: out of the ledger, without a look at any of them."""

from __future__ import annotations

from stado.core import keys
from stado.core.output_sizes import OutputSizes
from stado.core.usage import parse_use
from stado.errors import NotFound, Unavailable, Unreadable
from stado.jobs.ledger import Ledger
from stado.jobs.repository import Repository
from stado.storage.port import walk

_AT_ONCE = 4
"""Segments that are in memory at a time."""

_ROUNDS_MAX = 5


def read_output_sizes(repo: Repository) -> OutputSizes:
    """Requests: a listing of the names that no segment has (a page each 1,000), the index, and a
    read for each segment. One that cannot be read is counted. Raises `Unreadable` where the index
    is, `Unavailable` where it names segments that are gone."""
    for _ in range(_ROUNDS_MAX):
        try:
            return _read(repo, Ledger(repo))
        except NotFound:  # a segment was written anew since the index was read
            continue
    raise Unavailable(keys.LEDGER, "segments that it names are gone: `stado ledger rebuild`")


def _read(repo: Repository, ledger: Ledger) -> OutputSizes:
    sizes = OutputSizes()
    for entry in walk(repo.store, keys.USAGE):
        use = parse_use(entry.key.rpartition("/")[2])
        if use is not None:
            sizes.add(use)
    stored = ledger.index()
    refs = [] if stored is None else stored.value.segments
    for start in range(0, len(refs), _AT_ONCE):
        for uses in ledger.segments(refs[start : start + _AT_ONCE]):
            if isinstance(uses, Unreadable):
                repo.tell_unreadable(uses)
                sizes.unreadable += 1
                continue
            for use in uses:
                sizes.add(use)
    return sizes
