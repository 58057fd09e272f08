"""`stado outputs` and `stado result`: what a job left, without fetching it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import Checkpoint, Manifest, OutputFile, Record
    from stado.errors import Refused
    from stado.jobs.repository import Repository

_DIGEST_SHOWN = 12
_CHECKPOINTS_MAX = 100


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@json_option
@target_options
def outputs(*, job: str | None, as_json: bool, target: Target) -> int:
    """List what a job left: checkpoints, recordings and other files, with sizes and digests.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job.
    """
    from stado.cli import exits, render
    from stado.core.states import Leftover
    from stado.jobs.expired import going_text

    with opened_repository(target) as repo:
        record = _record(repo, job, "stado outputs")
        manifest = _manifest(repo, record)
        checkpoints = _checkpoints(repo, record)
        going = None if manifest is None else going_text(repo, record, Leftover.OUTPUTS)
        expired = _expired(repo, record, manifest, checkpoints)
    told = going if expired is None else expired.text
    if told is not None:
        render.tell(f"stado: {told}")
    if as_json:
        render.print_json(_fields(record, manifest, checkpoints))
    else:
        _print(record, manifest, checkpoints)
    return exits.OK if expired is None else exits.REFUSED


def _expired(
    repo: Repository, record: Record, manifest: Manifest | None, checkpoints: list[Checkpoint]
) -> Refused | None:
    """That files of it are not kept any more, where there is something else to show; raises it
    where there is nothing."""
    from stado.core.states import Leftover
    from stado.errors import Refused
    from stado.jobs.expired import check_there

    if manifest is not None:
        return None
    try:
        check_there(repo, record, Leftover.OUTPUTS)
    except Refused as error:
        if not checkpoints:
            raise
        return error
    return None


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@json_option
@target_options
def result(*, job: str | None, as_json: bool, target: Target) -> None:
    """Print the result of a job that completed: the JSON that it left as `result.json` at the top
    of its output folder, of at most 1 MiB.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job. With
    --json it is the field `result` of a document that names the job.
    """
    from stado.cli import render
    from stado.jobs.results import read_result

    with opened_repository(target) as repo:
        record = _record(repo, job, "stado result")
        found = read_result(repo, record)
    if as_json:
        fields = {"job_id": record.id, "run_id": record.run_id, "result": found.value}
        render.print_json(fields)
        return
    click.echo(_ascii(found.text).rstrip("\n"))


def _ascii(text: str) -> str:
    """JSON as it stands, but in plain characters: others occur in its strings only, and are
    escaped there, so that no terminal is driven."""
    return "".join(
        character if " " <= character <= "~" or character in "\n\t" else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    """A return stands between values only, where it means nothing."""
    import json

    if character == "\r":
        return ""
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def _record(repo: Repository, job: str | None, command: str) -> Record:
    from stado.cli.selectors import named_or_newest
    from stado.jobs.sight import present_record

    return present_record(repo, named_or_newest(repo, job, user=user_name(), command=command))


def _manifest(repo: Repository, record: Record) -> Manifest | None:
    from stado.jobs.outputs import find_present_manifest

    return find_present_manifest(repo, record.id, record.epoch, record.state)


def _checkpoints(repo: Repository, record: Record) -> list[Checkpoint]:
    """The newest first. One that is deleted between listing and read was an old one."""
    from stado.core.records import Checkpoint
    from stado.jobs.checkpoints import newest_manifests

    found = [
        repo.find(Checkpoint, key)
        for key in newest_manifests(repo, record.id, limit=_CHECKPOINTS_MAX)
    ]
    return [stored.value for stored in found if stored is not None]


def _print(record: Record, manifest: Manifest | None, checkpoints: list[Checkpoint]) -> None:
    from stado.cli import render
    from stado.cli.tables import Column

    rows = [*_checkpoint_rows(checkpoints), *map(_file_row, _sorted_files(manifest))]
    if rows:
        columns = [Column("KIND"), Column("SIZE"), Column("SHA256"), Column("NAME")]
        render.print_table(columns, rows)
    for line in manifest.skipped if manifest is not None else []:
        render.tell(f"left out: {line}")
    render.tell(_summary(record, manifest, checkpoints))


def _summary(record: Record, manifest: Manifest | None, checkpoints: list[Checkpoint]) -> str:
    from stado.cli import render

    files = manifest.files if manifest is not None else []
    told = f"{record.id}: {render.plural(len(files), 'file')}"
    if files:
        told += f", {render.size_text(sum(file.size for file in files))}"
    if checkpoints:
        told += f", and {render.plural(len(checkpoints), 'checkpoint')}"
    if not record.state.terminal:
        told += f"; the job is still {record.state.value}: its files come when it ends"
    elif manifest is not None and manifest.partial:
        told += "; partial, for the job did not succeed"
    if files:
        told += f"; `stado results {record.id} DIR` fetches them"
    return told


def _sorted_files(manifest: Manifest | None) -> list[OutputFile]:
    """Recordings first."""
    from stado.core.output_paths import is_recording

    files = manifest.files if manifest is not None else []
    return sorted(files, key=lambda file: (not is_recording(file.path), file.path))


def _checkpoint_rows(checkpoints: list[Checkpoint]) -> list[list[str]]:
    from stado.cli.render import size_text

    return [
        [
            "checkpoint",
            size_text(file.size),
            file.sha256[:_DIGEST_SHOWN],
            f"{checkpoint.epoch}.{checkpoint.sequence}/{file.path}",
        ]
        for checkpoint in checkpoints
        for file in checkpoint.files
    ]


def _file_row(file: OutputFile) -> list[str]:
    from stado.cli.render import size_text

    return [_kind(file), size_text(file.size), file.sha256[:_DIGEST_SHOWN], file.path]


def _kind(file: OutputFile) -> str:
    from stado.core.output_paths import RESULT_NAME, is_recording

    if file.path == RESULT_NAME:
        return "result"
    return "recording" if is_recording(file.path) else "file"


def _fields(
    record: Record, manifest: Manifest | None, checkpoints: list[Checkpoint]
) -> dict[str, Any]:
    return {
        "job_id": record.id,
        "run_id": record.run_id,
        "status": record.state.value,
        "epoch": manifest.epoch if manifest is not None else None,
        "partial": manifest.partial if manifest is not None else None,
        "outputs": [
            {
                "kind": _kind(file),
                "path": file.path,
                "size": file.size,
                "sha256": file.sha256,
                "key": file.key,
            }
            for file in _sorted_files(manifest)
        ],
        "skipped": manifest.skipped if manifest is not None else [],
        "checkpoints": [_checkpoint_fields(one) for one in checkpoints],
    }


def _checkpoint_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "epoch": checkpoint.epoch,
        "sequence": checkpoint.sequence,
        "at": instant_text(checkpoint.at),
        "files": [
            {"path": file.path, "size": file.size, "sha256": file.sha256}
            for file in checkpoint.files
        ],
    }
