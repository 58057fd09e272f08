"""A job's inputs, on this host before its command is started: each file checked, or the job fails
by the name of the input and what is wrong with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stado.core.inputs import ObjectPlace, parse_place
from stado.core.spec import Input
from stado.errors import (
    Conflict,
    Denied,
    Misconfigured,
    NotFound,
    Refused,
    StadoError,
    Unreadable,
)
from stado.jobs.folders import make_folder
from stado.jobs.inputs import Piece, pieces_of
from stado.jobs.outputs import safe_targets
from stado.jobs.repository import Repository
from stado.storage.port import FileDigest
from stado_agent.breaks import InputUnavailable
from stado_agent.downloads import Heed, Interrupted, Pace, download
from stado_agent.elsewhere import Elsewhere
from stado_agent.input_cache import Content, Download, InputCache

log = logging.getLogger(__name__)

_PARALLEL_DOWNLOADS = 4
_BATCH = 16
"""Files between two looks at whether the job is still ours, and wanted."""


@dataclass(frozen=True, slots=True)
class _File:
    content: Content
    target: Path
    fetch: Download


class InputFetching:
    """The inputs of one job. A call that the store does not answer may be repeated: what has
    arrived is not fetched again."""

    def __init__(
        self,
        repo: Repository,
        folder: Path,
        *,
        cache: InputCache,
        elsewhere: Elsewhere,
        pace: Pace,
        heed: Heed,
    ) -> None:
        self._repo = repo
        self._folder = folder
        self._cache = cache
        self._elsewhere = elsewhere
        self._pace = pace
        self._heed = heed
        self._arrived: set[Path] = set()

    def fetch(self, wanted: Input) -> None:
        """Raises `InputUnavailable`, `Interrupted`, `OSError` of this host, and errors of stores
        that may take it another time."""
        try:
            self._fetch_files(list(self._files(wanted)))
        except (NotFound, Conflict, Refused, Unreadable) as error:
            raise InputUnavailable(f"input {wanted.name}: {error}") from error
        except (Denied, Misconfigured) as error:
            if not wanted.elsewhere:
                raise  # as with everything else of our own store: it may be mended
            raise InputUnavailable(f"input {wanted.name}: {error}") from error
        log.info("event=input_there name=%s source=%s", wanted.name, wanted.source)

    def _files(self, wanted: Input) -> Iterator[_File]:
        folder = self._folder / wanted.name
        if wanted.elsewhere:
            place = parse_place(wanted.source)
            target = safe_targets(folder, [place.name])[place.name]
            yield self._object(wanted, place, target)
            return
        pieces = pieces_of(self._repo, wanted)
        targets = safe_targets(folder, [piece.path for piece in pieces])
        for piece in pieces:
            yield self._piece(piece, targets[piece.path])

    def _piece(self, piece: Piece, target: Path) -> _File:
        place = f"{piece.path} ({piece.key})"

        def fetch(path: Path) -> FileDigest:
            with _absence_named(place):
                return download(
                    self._repo.store,
                    piece.key,
                    path,
                    size=piece.size,
                    heed=self._heed,
                    pace=self._pace,
                )

        content = Content(place, piece.sha256, piece.size)
        return _File(content, target, fetch)

    def _object(self, wanted: Input, place: ObjectPlace, target: Path) -> _File:
        with _absence_named(wanted.source):
            size = self._elsewhere.size(place)

        def fetch(path: Path) -> FileDigest:
            with _absence_named(wanted.source):
                return self._elsewhere.download(place, path, size=size, heed=self._heed)

        return _File(Content(wanted.source, wanted.sha256, size), target, fetch)

    def _fetch_files(self, files: list[_File]) -> None:
        missing = [file for file in files if file.target not in self._arrived]
        with self._cache.room_for([file.content for file in missing]) as keep:
            for start in range(0, len(missing), _BATCH):
                self._heed()
                self._fetch_batch(missing[start : start + _BATCH], keep=keep)

    def _fetch_batch(self, files: list[_File], *, keep: bool) -> None:
        """Once one has failed no other is begun: each would wait for the store as long."""
        failed = False

        def fetch(file: _File) -> None:
            nonlocal failed
            if failed:
                return
            try:
                self._fetch_one(file, keep=keep)
            except (StadoError, OSError, Interrupted):
                failed = True
                raise

        self._repo.tasks.map(fetch, files, limit=_PARALLEL_DOWNLOADS)

    def _fetch_one(self, file: _File, *, keep: bool) -> None:
        make_folder(file.target.parent)
        self._cache.deliver(file.content, file.target, file.fetch, keep=keep, heed=self._heed)
        self._arrived.add(file.target)


@contextmanager
def _absence_named(place: str) -> Iterator[None]:
    """By what people know it under."""
    try:
        yield
    except NotFound as error:
        why = str(error).removeprefix(error.key).removeprefix(": ")
        raise NotFound(place, why or "it is not there (any more)") from None
