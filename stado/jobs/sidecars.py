"""The sidecar of a checkpoint folder, written from within a job."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from stado.core.documents import from_plain
from stado.core.sidecar import NAME, Sidecar

_CHUNK_BYTES = 1024 * 1024


def write_sidecar(
    folder: Path,
    *,
    step: int | None = None,
    metric: str | None = None,
    value: float | None = None,
    higher_is_better: bool = True,
    files: Iterable[str] = (),
) -> None:
    """Says of the checkpoint that lies in `folder` how far it got and how good it is. Call it when
    the checkpoint's files are whole. `files`: paths in the folder that it speaks of; their digests
    are taken, so that it is never believed of others.

    It is replaced in one step. Raises `msgspec.ValidationError` (a `ValueError`) for what no
    sidecar can hold, `OSError`."""
    said = {
        "step": step,
        "metric": metric,
        "value": value,
        "higher_is_better": higher_is_better,
        "files": {name: _digest(folder / name) for name in files},
    }
    sidecar = from_plain(Sidecar, said)
    partial = folder / f".{NAME}.{os.getpid()}"
    try:
        partial.write_bytes(sidecar.encode())
        os.replace(partial, folder / NAME)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()
