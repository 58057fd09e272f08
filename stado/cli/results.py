"""`stado results`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.core.records import Manifest, Record
    from stado.jobs.repository import Repository


class Fetched(NamedTuple):
    """What was downloaded of a job, and where it is."""

    record: Record
    folder: Path
    manifest: Manifest


@click.command()
@click.argument("job", metavar="ID")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@target_options
def results(*, job: str, folder: Path, as_json: bool, target: Target) -> None:
    """Download the files, the log and the manifest of a job into DIR; of a batch, each job into
    DIR/<job id>.

    Each file is checked against the size and the SHA-256 of its manifest. A job that failed has
    results too. ID is a job or batch id, a part of one, a run id, `last`, or `all`: every job of
    yours that has ended, each into DIR/<job id>.
    """
    from stado.cli import render

    with opened_repository(target) as repo:
        selection = _selection(repo, job)
        folders = _folders(selection, folder)
        _check(folders, folder, selection)
        fetched = [_fetch(repo, job_id, place) for job_id, place in folders.items()]
        if as_json:
            render.print_json({"jobs": [_fields(one) for one in fetched]})
            return
        for one in fetched:
            render.print_line(str(one.folder))
            render.tell(_sentence(one))


def _selection(repo: Repository, text: str) -> Selection:
    from stado.cli.selectors import means_all, select, select_ended
    from stado.errors import Refused

    if not means_all(text):
        return select(repo, text, user=user_name())
    selection = select_ended(repo, user=user_name())
    if not selection.job_ids:
        raise Refused("job_unknown", f"no job of {user_name()} has ended yet")
    return selection


def _folders(selection: Selection, folder: Path) -> dict[str, Path]:
    if not selection.batch:
        return {selection.job_ids[0]: folder}
    return {job_id: folder / job_id for job_id in selection.job_ids}


def _check(folders: dict[str, Path], folder: Path, selection: Selection) -> None:
    """Raises `Refused` before anything is fetched or made."""
    from stado.errors import Refused
    from stado.jobs.outputs import check_folder

    if folder.exists() and not folder.is_dir():
        raise Refused("results_not_a_folder", f"{folder} is a file: name a folder")
    if folder not in folders.values() and folder.is_dir():
        others = sorted(set(os.listdir(folder)) - set(selection.job_ids))
        if others:
            raise Refused(
                "results_folder_not_empty",
                f"{folder} holds other files ({others[0]!r}, {len(others)} in all): "
                "name a new or an empty folder",
            )
    for job_id, place in folders.items():
        check_folder(place, job_id)


def _fetch(repo: Repository, job_id: str, folder: Path) -> Fetched:
    from stado.core.states import State
    from stado.errors import Refused
    from stado.jobs.outputs import download
    from stado.jobs.sight import present_record

    record = present_record(repo, job_id)
    try:
        manifest = download(
            repo,
            job_id=job_id,
            epoch=record.epoch,
            folder=folder,
            partial=record.state is not State.COMPLETED,
        )
    except OSError as error:
        raise Refused(
            "results_folder_unusable",
            f"{error.filename or folder} cannot be written: {error.strerror}: name another folder",
        ) from None
    return Fetched(record, folder, manifest)


def _sentence(one: Fetched) -> str:
    from stado.cli import render

    size = sum(file.size for file in one.manifest.files)
    told = f"{one.record.id}: {render.plural(len(one.manifest.files), 'file')}"
    log = one.manifest.log
    told += f", {render.size_text(size)}, and {'the' if log is None or log.written else 'no'} log"
    if log is not None and log.dropped:
        told += f" ({log.dropped:,} of its {log.written:,} bytes were dropped)"
    if one.manifest.skipped:
        told += f"; {render.plural(len(one.manifest.skipped), 'path')} left out (see the manifest)"
    if not one.record.state.at_rest:
        told += f"; the job is still {one.record.state.value}: more may come"
    elif one.manifest.partial:
        told += "; partial, for the job did not succeed"
    return told


def _fields(one: Fetched) -> dict[str, Any]:
    return {
        "job_id": one.record.id,
        "status": one.record.state.value,
        "folder": str(one.folder),
        "epoch": one.manifest.epoch,
        "partial": one.manifest.partial,
        "files": [
            {"path": file.path, "size": file.size, "sha256": file.sha256}
            for file in one.manifest.files
        ],
        "skipped": one.manifest.skipped,
        "log": one.manifest.log.plain() if one.manifest.log is not None else None,
    }
