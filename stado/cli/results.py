"""`stado results` and `stado recordings`: what a job left, into a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stado.cli.answers import Answers
    from stado.cli.selectors import Selection
    from stado.core.records import Record
    from stado.errors import Refused, StadoError
    from stado.jobs.downloads import Downloaded, Wanted
    from stado.jobs.repository import Repository


class Fetched(NamedTuple):
    """What was downloaded of a job, and where it is."""

    record: Record
    folder: Path
    downloaded: Downloaded
    whole: bool
    """Whether all of it was asked for."""
    log_kept: bool = True
    """False: its log has gone for its age."""


@click.command()
@click.argument("job", metavar="ID")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--only",
    callback=options.plain_texts,
    multiple=True,
    metavar="PATTERN",
    help="Only files that this names, such as model.npz or 'plots/*.png' (repeatable).",
)
@json_option
@target_options
def results(*, job: str, folder: Path, only: list[str], as_json: bool, target: Target) -> int:
    """Download the files, the log and the manifest of a job into DIR; of a batch, each job into
    DIR/<job id>.

    Each file is checked against the size and the SHA-256 of its manifest. When it was interrupted,
    the same command goes on: what is there and right is not fetched again. A job that failed has
    results too. ID is a job or batch id, a part of one, a run id, `last`, or `all`: every job of
    yours that has ended, each into DIR/<job id>. Of several jobs one that cannot be fetched keeps
    none of the others back: it is named, and the exit code is 1.
    """
    from stado.core.output_paths import check_pattern
    from stado.jobs.downloads import Wanted

    for pattern in only:
        check_pattern(pattern, "--only")
    with opened_repository(target) as repo:
        selection = _selection(repo, job)
        folders = _folders(selection, folder)
        _check(folders, folder, selection)
        return _show(_fetch_all(repo, folders, Wanted(only=only)), as_json=as_json)


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@json_option
@target_options
def recordings(*, job: str | None, folder: Path | None, as_json: bool, target: Target) -> int:
    """Download what a job left in the folder `recordings` of its output into DIR.

    Without DIR into `recordings-<job id>` here. ID is a job id, a part of one, a run id, or
    `last`; without one it is your newest job. Recordings of a cancelled job are dropped.
    """
    from stado.cli.selectors import named_or_newest
    from stado.core.output_paths import RECORDINGS_FOLDER
    from stado.jobs.downloads import Wanted

    with opened_repository(target) as repo:
        job_id = named_or_newest(repo, job, user=user_name(), command="stado recordings")
        place = folder if folder is not None else Path(f"{RECORDINGS_FOLDER}-{job_id}")
        wanted = Wanted(below=f"{RECORDINGS_FOLDER}/")
        return _show(_fetch_all(repo, {job_id: place}, wanted), as_json=as_json)


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
    from stado.jobs.download_folders import check_folder

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


def _fetch_all(repo: Repository, folders: dict[str, Path], wanted: Wanted) -> Answers[Fetched]:
    """One job after another, each with its files in parallel. Raises what is wrong with a job that
    was named alone; of several it is collected, and some may have nothing of what is wanted, but
    not all."""
    from stado.cli.answers import Answers
    from stado.cli.downloading import shown_download
    from stado.cli.failures import going_on
    from stado.errors import Conflict, NotFound, Refused, Unreadable

    fetched: dict[str, Fetched] = {}
    refused: dict[str, Refused] = {}
    lacking: list[Refused] = []
    with (
        going_on("interrupted: what is whole stays; the same command goes on from here"),
        shown_download() as sight,
    ):
        for job_id, place in folders.items():
            try:
                fetched[job_id] = _fetch(repo, job_id, place, replace(wanted, sight=sight))
            except (Refused, Conflict, NotFound, Unreadable) as error:
                if isinstance(error, Refused) and error.code == "output_unknown":
                    lacking.append(error)
                elif len(folders) == 1:
                    raise
                else:
                    refused[job_id] = _refusal(job_id, error)
    if not fetched and not refused:
        raise _nothing(lacking, wanted)
    return Answers(fetched, refused)


def _refusal(job_id: str, error: StadoError) -> Refused:
    from stado.errors import Refused, StoreError, Unreadable

    if isinstance(error, Refused):
        return Refused(error.code, f"{job_id}: {error.text}")
    code = "results_unreadable" if isinstance(error, Unreadable) else "results_damaged"
    text = str(error)
    if isinstance(error, StoreError):
        text = text.removeprefix(f"{error.key}: ")
    return Refused(code, f"{job_id}: {text}")


def _nothing(lacking: Sequence[Exception], wanted: Wanted) -> Exception:
    from stado.errors import Refused

    if wanted.below:
        return Refused("recordings_none", f"{lacking[0]}: its output has no {wanted.below} folder")
    return Refused(
        "output_unknown",
        f"{lacking[0]}: no output is named so; `stado outputs` lists what there is",
    )


def _log_is_kept(repo: Repository, record: Record) -> bool:
    from stado.core.states import Leftover
    from stado.errors import Refused
    from stado.jobs.expired import check_there
    from stado.jobs.log_segments import epochs_with_log

    if not record.state.terminal or epochs_with_log(repo, record.id):
        return True
    try:
        check_there(repo, record, Leftover.LOG)
    except Refused:
        return False
    return True


def _fetch(repo: Repository, job_id: str, folder: Path, wanted: Wanted) -> Fetched:
    from stado.errors import Refused
    from stado.jobs.downloads import download
    from stado.jobs.expired import told_expired
    from stado.jobs.sight import present_record

    record = present_record(repo, job_id)
    try:
        with told_expired(repo, record):
            downloaded = download(
                repo,
                job_id=job_id,
                epoch=record.epoch,
                folder=folder,
                state=record.state,
                wanted=wanted,
            )
    except OSError as error:
        raise Refused(
            "results_folder_unusable",
            f"{error.filename or folder} cannot be written: {error.strerror}: name another folder",
        ) from None
    kept = not wanted.log or _log_is_kept(repo, record)
    return Fetched(record, folder, downloaded, whole=wanted.log, log_kept=kept)


def _show(answers: Answers[Fetched], *, as_json: bool) -> int:
    from stado.cli import exits, render

    if as_json:
        jobs = [_fields(one) for one in answers.done.values()]
        render.print_json({"jobs": jobs, "refused": answers.refused_fields()})
    else:
        for one in answers.done.values():
            render.print_line(str(one.folder))
            render.tell(_sentence(one))
        answers.tell_refused("fetched")
    return exits.FAILED if answers.refused else exits.OK


def _sentence(one: Fetched) -> str:
    from stado.cli import render

    files = one.downloaded.files
    told = f"{one.record.id}: {render.plural(len(files), 'file')}"
    told += f", {render.size_text(sum(file.size for file in files))}"
    if one.whole:
        told += _log_text(one)
    there = len(files) - one.downloaded.fetched
    if there:
        told += f"; {there:,} of them {'was' if there == 1 else 'were'} there already"
    told += _earlier_text(one.downloaded)
    if one.downloaded.manifest.skipped and one.whole:
        left_out = render.plural(len(one.downloaded.manifest.skipped), "path")
        told += f"; {left_out} left out (see the manifest)"
    if not one.record.state.terminal:
        told += f"; the job is still {one.record.state.value}: more may come"
    elif one.downloaded.manifest.partial:
        told += "; partial, for the job did not succeed"
    return told


def _earlier_text(downloaded: Downloaded) -> str:
    """What became of files that an earlier epoch had left."""
    from stado.cli import render

    told = ""
    if downloaded.removed:
        files = render.plural(downloaded.removed, "file")
        told += f"; {files} of an earlier try went"
    if downloaded.changed:
        count = len(downloaded.changed)
        more = f" and {count - 1:,} more" if count > 1 else ""
        told += f"; {downloaded.changed[0]}{more} of an earlier try, changed since, "
        told += "stays" if count == 1 else "stay"
    return told


def _log_text(one: Fetched) -> str:
    if not one.log_kept:
        return "; its log is not kept any more"
    log = one.downloaded.manifest.log
    told = f", and {'the' if log is None or log.written else 'no'} log"
    if log is not None and log.dropped:
        told += f" ({log.dropped:,} of its {log.written:,} bytes were dropped)"
    return told


def _fields(one: Fetched) -> dict[str, Any]:
    manifest = one.downloaded.manifest
    return {
        "job_id": one.record.id,
        "status": one.record.state.value,
        "folder": str(one.folder),
        "epoch": manifest.epoch,
        "partial": manifest.partial,
        "fetched": one.downloaded.fetched,
        "removed": one.downloaded.removed,
        "changed": list(map(str, one.downloaded.changed)),
        "files": [
            {"path": file.path, "size": file.size, "sha256": file.sha256}
            for file in one.downloaded.files
        ],
        "skipped": manifest.skipped,
        "log": manifest.log.plain() if manifest.log is not None else None,
    }
