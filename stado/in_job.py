"""What a program says to stado while it runs as a job: checkpoints, progress, metrics, its result,
where it can be watched, or that it refuses to go on.

A training imports this, so that it needs nothing but the standard library and loads most of that
where it is used. Each function works with a folder that a variable names. Where the variable is not
set, as outside of a job, the arguments are checked all the same, and nothing is kept.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress

from stado.reports import (
    LIVE_NAME,
    PROGRESS_NAME,
    PROGRESS_WRITTEN_MAX,
    REFUSAL_NAME,
    REFUSED_EXIT_CODE,
    live_flaw,
)

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any, NoReturn, SupportsFloat, SupportsIndex

_OUTPUT = "STADO_OUTPUT_DIR"
_CHECKPOINTS = "STADO_CHECKPOINT_DIR"
_REPORTS = "STADO_REPORT_DIR"

METRICS_NAME = "metrics.jsonl"
RESULT_NAME = "result.json"
RESULT_BYTES_MAX = 1024 * 1024

_SIDECAR_NAME = "stado-checkpoint.json"
"""As PROTOCOL.md has it, with its fields: `stado.core.sidecar` reads it."""

_KEPT_METRICS_NAME = ".stado-metrics.jsonl"
_STEP_PREFIX = "step-"
_STEP_MAX = 2**63 - 1
_NUMBER_MAX = 1e300
_METRIC_NAME_MAX = 64


class Checkpoint:
    """A checkpoint that lies in the job's folder: its files are in `folder`."""

    __slots__ = ("folder", "step")

    def __init__(self, folder: Path, step: int) -> None:
        self.folder = folder
        self.step = step

    def __repr__(self) -> str:
        return f"Checkpoint(folder={str(self.folder)!r}, step={self.step})"


@contextmanager
def checkpoint(
    *,
    step: SupportsIndex,
    metric: str | None = None,
    value: SupportsFloat | None = None,
    higher_is_better: bool = True,
) -> Iterator[Path]:
    """Saves a checkpoint: write its files into the folder that `with` gives.

        with stado.checkpoint(step=300, metric="accuracy", value=0.93) as folder:
            numpy.savez(folder / "weights.npz", weights=weights)

    At the end of the block it takes the place of the one before, whole; when the block raises,
    nothing has changed. `step`: how far the job has got. `value`: how good the checkpoint is, by
    the measure that `metric` names; the best one is kept beside the newest.

    Raises `ValueError` for a value that is not finite, a step below 0, an empty checkpoint;
    `OSError`."""
    said = _sidecar(step, metric, value, higher_is_better=higher_is_better)
    target = _folder(_CHECKPOINTS)
    building = _building_folder(target)
    try:
        yield building
        if not any(building.iterdir()):
            raise ValueError(
                "the checkpoint is empty: write its files into the folder that `with` gives"
            )
        if target is not None:
            _keep_metrics(building)
            _put_in_place(building, target, said)
    finally:
        _remove(building)


def latest_checkpoint() -> Checkpoint | None:
    """What to go on from: the checkpoint that an earlier epoch of the job saved last, or that this
    one has saved since. None when there is none.

    The metrics that had been written by then are there again, if none have been written since."""
    target = _folder(_CHECKPOINTS)
    steps = _steps(target) if target is not None else {}
    if not steps:
        return None
    found = Checkpoint(steps[max(steps)], max(steps))
    _bring_metrics_back(found)
    return found


def progress(fraction: SupportsFloat, text: str = "") -> None:
    """Tells how much of the job is done, from 0 to 1, and in a few words what it is doing: for
    `stado status` and `stado job show`, which have it at the worker's next beat. One small file is
    replaced; that it cannot be written is no error.

    Raises `ValueError` when the fraction is no number."""
    share = min(1.0, max(0.0, _finite("fraction", fraction)))
    said = {"fraction": share, "text": str(text)[:PROGRESS_WRITTEN_MAX]}
    with suppress(OSError):
        folder = _folder(_REPORTS)
        if folder is not None:
            _replace(folder / PROGRESS_NAME, _json(said))


def live(url: str) -> None:
    """Tells where the job can be watched while it runs, such as a TensorBoard or a notebook: for
    `stado view` and `stado job show`, which have it at the worker's next beat. The last one counts.
    That it cannot be written is no error.

    Raises `ValueError` for what is no http or https URL, has more than 1,000 characters, or a user
    or a password in it."""
    said = str(url).strip()
    flaw = live_flaw(said)
    if flaw is not None:
        raise ValueError(f"the URL of the live view {flaw}")
    with suppress(OSError):
        folder = _folder(_REPORTS)
        if folder is not None:
            _replace(folder / LIVE_NAME, said.encode())


def metrics(step: SupportsIndex, **values: SupportsFloat) -> None:
    """Adds a line to `metrics.jsonl` in the output folder: `{"step": 3, "loss": 0.5}`.

    Numbers only, and what converts itself to one, as a NumPy scalar does. Raises `ValueError` for
    one that is not finite, `OSError`."""
    line: dict[str, float] = {"step": _count("step", step)}
    line |= {name: _finite(name, value) for name, value in values.items()}
    folder = _folder(_OUTPUT)
    if folder is None:
        return
    file = os.open(folder / METRICS_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, _json(line) + b"\n")
    finally:
        os.close(file)


def result(value: dict[str, Any]) -> None:
    """Writes the job's result, `result.json` in the output folder, in place of an earlier one. It
    is what `Job.result()` gives once the job has completed.

    Raises `TypeError` for what JSON cannot hold, `ValueError` for numbers that are not finite and
    for more than 1 MiB, `OSError`."""
    if not isinstance(value, dict):
        raise TypeError(f"a result is a dict, not {type(value).__name__}")
    data = _json(value)
    if len(data) > RESULT_BYTES_MAX:
        raise ValueError(
            f"the result has {len(data):,} bytes and at most {RESULT_BYTES_MAX:,} are taken: write "
            f"it into a file of {_OUTPUT} and name that"
        )
    folder = _folder(_OUTPUT)
    if folder is not None:
        _replace(folder / RESULT_NAME, data)


def refuse(reason: str) -> NoReturn:
    """Ends the program, and with it the job: failed, `job_refused`, for this reason. Such a job is
    never tried again. Call it in the main thread.

    Raises `ValueError` without a reason, else `SystemExit`."""
    said = str(reason).strip()
    if not said:
        raise ValueError("say why: a job that refuses to go on has a reason")
    folder = _folder(_REPORTS)
    if folder is not None:
        _replace(folder / REFUSAL_NAME, said.encode("utf-8", "replace"))
    sys.stderr.write(f"refused: {said}\n")
    raise SystemExit(REFUSED_EXIT_CODE)


# --- checkpoints ----------------------------------------------------------------------------


def _sidecar(
    step: SupportsIndex,
    metric: str | None,
    value: SupportsFloat | None,
    *,
    higher_is_better: bool,
) -> dict[str, Any]:
    if metric is not None and value is None:
        raise ValueError(f"metric {metric!r} has no value: give value=, or leave out both")
    if metric is not None and not _is_metric_name(metric):
        raise ValueError(
            f"metric {metric!r} cannot be a name: 1 to {_METRIC_NAME_MAX} visible ASCII characters"
        )
    said: dict[str, Any] = {"schema": 1, "step": _count("step", step)}
    if value is not None:
        said |= {"metric": metric, "value": _finite("value", value)}
        said["higher_is_better"] = bool(higher_is_better)
    return said


def _is_metric_name(name: str) -> bool:
    visible = name.isascii() and name.isprintable() and " " not in name
    return visible and 1 <= len(name) <= _METRIC_NAME_MAX


def _building_folder(target: Path | None) -> Path:
    """Beside the checkpoint folder, which is saved as a whole whenever it stands still."""
    from pathlib import Path
    from tempfile import mkdtemp

    beside = _folder(_REPORTS) or (target.parent if target is not None else None)
    return Path(mkdtemp(prefix=".stado-checkpoint-", dir=beside))


def _put_in_place(building: Path, target: Path, said: Mapping[str, Any]) -> None:
    """At no moment the sidecar speaks of another checkpoint than its own, and none that is half
    removed looks like one; the folder is saved only once it has stood still."""
    step, earlier = said["step"], _steps(target)
    (target / _SIDECAR_NAME).unlink(missing_ok=True)
    if step in earlier:
        _set_aside(earlier.pop(step))
    _move(building, target / f"{_STEP_PREFIX}{step:012d}")
    for folder in earlier.values():
        _set_aside(folder)
    for leftover in target.glob(f".*{_STEP_PREFIX}*"):
        _remove(leftover)
    _replace(target / _SIDECAR_NAME, _json(said))


def _keep_metrics(building: Path) -> None:
    """What was measured after the checkpoint will be measured again by who goes on from it."""
    import shutil

    folder = _folder(_OUTPUT)
    if folder is not None and (folder / METRICS_NAME).exists():
        shutil.copyfile(folder / METRICS_NAME, building / _KEPT_METRICS_NAME)


def _bring_metrics_back(found: Checkpoint) -> None:
    import shutil

    folder, kept = _folder(_OUTPUT), found.folder / _KEPT_METRICS_NAME
    if folder is not None and kept.exists() and not (folder / METRICS_NAME).exists():
        shutil.copyfile(kept, folder / METRICS_NAME)


def _steps(target: Path) -> dict[int, Path]:
    found = {}
    for path in target.iterdir():
        digits = path.name.removeprefix(_STEP_PREFIX)
        if path.name.startswith(_STEP_PREFIX) and digits.isdecimal() and path.is_dir():
            found[int(digits)] = path
    return found


def _set_aside(folder: Path) -> None:
    """In one step, for who is killed while it is removed."""
    aside = folder.with_name(f".old-{folder.name}")
    _remove(aside)
    os.rename(folder, aside)


def _move(source: Path, target: Path) -> None:
    """The two may be on different file systems, as they may be in a container."""
    import errno
    import shutil

    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        partial = target.with_name(f".{target.name}")
        _remove(partial)
        shutil.copytree(source, partial)
        os.rename(partial, target)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


# --- folders and values ---------------------------------------------------------------------


def _folder(variable: str) -> Path | None:
    """What a variable names; it is made where somebody set the variable by hand. An empty one
    counts as unset, as it does for a shell."""
    from pathlib import Path

    name = os.environ.get(variable)
    if not name:
        return None
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _replace(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _json(value: object) -> bytes:
    import json

    return json.dumps(value, allow_nan=False).encode()


def _finite(name: str, value: Any) -> float:
    """A number as JSON has it: whole ones stay whole."""
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool) or not hasattr(number, "__float__"):
        raise ValueError(f"{name} {value!r} is no number")
    number = number if isinstance(number, int) else float(number)
    if not abs(number) <= _NUMBER_MAX:
        raise ValueError(f"{name} is {number:g}: only finite numbers are taken")
    return number


def _count(name: str, value: Any) -> int:
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    number = int(value.__index__()) if whole else -1
    if not 0 <= number <= _STEP_MAX:
        raise ValueError(f"{name} {value!r} is no whole number from 0 to {_STEP_MAX}")
    return number
