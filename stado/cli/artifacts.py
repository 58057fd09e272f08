"""`stado artifact publish`, `list`, `show` and `verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stado.core.records import Artifact
    from stado.jobs.artifacts import Damage, Name, Names
    from stado.jobs.repository import Repository

_ROWS_DEFAULT = 50
_ROWS_MAX = 1000
_FILES_SHOWN = 50
_TOLD_EVERY_SECONDS = 5.0


@click.command()
@click.argument("job", metavar="JOB")
@click.option(
    "--name", required=True, callback=options.plain_text, metavar="NAME", help="Of the artifact."
)
@click.option(
    "--path",
    default="",
    callback=options.plain_text,
    metavar="PATH",
    help="A folder or file of the output.  [default: all of it]",
)
@click.option("--partial", is_flag=True, help="Also of a job that did not complete.")
@json_option
@target_options
def publish(
    *, job: str, name: str, path: str, partial: bool, as_json: bool, target: Target
) -> None:
    """Give what a job left, or a part of it, the next version of a name.

    A version never changes. Publishing the same output under the name again answers the version
    that it has. JOB is a job id, a part of one, a run id, or `last`.

    \b
      stado artifact publish last --name digits
      stado submit --run-id next --input-artifact data=artifact:digits@1 'ls $STADO_INPUT_DIR/data'
    """
    from stado.cli import render
    from stado.cli.selectors import select_job
    from stado.core.inputs import check_artifact_name, checked_path
    from stado.jobs.artifacts import publish as publish_output

    check_artifact_name(name)
    path, user = checked_path(path), user_name()
    with opened_repository(target) as repo:
        job_id = select_job(repo, job, user=user, command="stado artifact publish")
        done = publish_output(repo, job_id=job_id, name=name, path=path, by=user, partial=partial)
    artifact = done.artifact
    if as_json:
        render.print_json({**_fields(artifact), "created": done.created})
        return
    said = "published" if done.created else "already published:"
    render.print_line(_label(artifact))
    render.tell(f"{said} {_label(artifact)}, {_size_text(artifact)} of job {artifact.job_id}")
    render.tell(f"use it: stado submit --input-artifact {name}=artifact:{_label(artifact)} …")


@click.command("list")
@click.argument("part", metavar="[PART]", default="", callback=options.plain_text)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=_ROWS_MAX),
    default=_ROWS_DEFAULT,
    show_default=True,
    metavar="N",
    help="At most so many names.",
)
@click.option(
    "--after", default="", callback=options.plain_text, metavar="NAME", help="Those after NAME."
)
@json_option
@target_options
def list_artifacts(*, part: str, limit: int, after: str, as_json: bool, target: Target) -> None:
    """List the artifacts, by name, with the newest version of each; of those whose name holds
    PART."""
    from stado.cli import render
    from stado.core.inputs import check_artifact_name
    from stado.jobs.artifacts import names

    if after:
        check_artifact_name(after)
    with opened_repository(target) as repo:
        found = names(repo, part=part, after=after, limit=limit)
        now = repo.now()
    if as_json:
        render.print_json(
            {
                "artifacts": [_row_fields(row) for row in found.rows],
                "more": found.more,
                "after": found.after,
            }
        )
        return
    if found.rows:
        render.print_table(*_table(found, now))
    for note in notes_of(found, part):
        render.tell(note)


@click.command()
@click.argument("artifact", metavar="NAME[@VERSION]")
@json_option
@target_options
def show(*, artifact: str, as_json: bool, target: Target) -> None:
    """Tell what an artifact holds, and where it is from. Without a version: the newest."""
    from stado.cli import render
    from stado.cli.stories import LABEL_WIDTH

    with opened_repository(target) as repo:
        found, digest = _read(repo, artifact)
        if as_json:
            render.print_json({**_fields(found), "document_sha256": digest})
            return
        for label, text in _story(repo, found):
            render.print_wrapped(f"{label:<{LABEL_WIDTH}}{text}", indent=LABEL_WIDTH)


@click.command()
@click.argument("artifact", metavar="NAME[@VERSION]")
@json_option
@target_options
def verify(*, artifact: str, as_json: bool, target: Target) -> int:
    """Read every file of an artifact anew, and compare sizes and SHA-256.

    Prints each file that is missing or not what was published. Exit code 1 when there is one.
    """
    from tempfile import TemporaryDirectory

    from stado.cli import exits, render

    with opened_repository(target) as repo, TemporaryDirectory(prefix="stado-") as folder:
        found, _ = _read(repo, artifact)
        damages: list[Damage] = []
        for damage in _verified(repo, found, Path(folder)):
            damages.append(damage)
            if not as_json:
                render.print_line(f"{damage.path}: {damage.why} ({damage.key})")
    if as_json:
        render.print_json({**_fields(found), "damages": [_damage_fields(one) for one in damages]})
    elif damages:
        render.tell(f"{_label(found)} is damaged: {_damaged_text(found, damages)}")
    else:
        render.tell(f"{_label(found)} is as it was published: {_size_text(found)}")
    return exits.FAILED if damages else exits.OK


def _read(repo: Repository, text: str) -> tuple[Artifact, str]:
    from stado.core.inputs import parse_artifact_name
    from stado.jobs.artifacts import read_artifact

    return read_artifact(repo, *parse_artifact_name(text.strip()))


def _verified(repo: Repository, artifact: Artifact, folder: Path) -> Iterator[Damage]:
    """What takes long says how far it is."""
    from stado.cli import render
    from stado.jobs.artifacts import verify as verify_artifact

    told_at = repo.clock.monotonic()
    for count, damages in verify_artifact(repo, artifact, folder):
        yield from damages
        if repo.clock.monotonic() - told_at > _TOLD_EVERY_SECONDS:
            told_at = repo.clock.monotonic()
            render.tell(f"{count:,} of {len(artifact.files):,} files read")


def _label(artifact: Artifact) -> str:
    return f"{artifact.name}@{artifact.version}"


def _size(artifact: Artifact) -> int:
    return sum(file.size for file in artifact.files)


def _size_text(artifact: Artifact) -> str:
    from stado.cli import render

    files = render.plural(len(artifact.files), "file")
    return f"{files}, {render.size_text(_size(artifact))}"


def _damaged_text(artifact: Artifact, damages: list[Damage]) -> str:
    from stado.cli import render

    return f"{len(damages):,} of {render.plural(len(artifact.files), 'file')}"


def notes_of(found: Names, part: str) -> Iterator[str]:
    """What is said beside a listing of the names that hold `part`."""
    import shlex

    for row in found.rows:
        if row.problem is not None:
            yield f"{row.name}@{row.version} cannot be read: {row.problem}"
    if not found.rows:
        named = f" with {part!r} in its name" if part else ""
        yield f"nothing is published{named}" + (f", up to {found.after}" if found.after else "")
    if found.more:
        shown_part = f" {shlex.quote(part)}" if part else ""
        yield f"there are more: stado artifact list{shown_part} --after {found.after}"


def _table(found: Names, now: Any) -> tuple[list[Any], list[list[str]]]:
    from stado.cli.tables import Column

    columns = [
        Column("ARTIFACT"),
        Column("FILES", right=True),
        Column("SIZE", right=True),
        Column("AGE", right=True),
        Column("BY", width_max=20),
        Column("JOB"),
    ]
    return columns, [_cells(row, now) for row in found.rows]


def _cells(row: Name, now: Any) -> list[str]:
    from stado.cli import render

    label, newest = f"{row.name}@{row.version}", row.newest
    if newest is None:
        return [label, "?", "?", "?", "?", "unreadable"]
    age = render.short_duration((now - newest.published_at).total_seconds())
    size = render.size_text(_size(newest))
    files = f"{len(newest.files):,}"
    return [label, files, size, age, newest.published_by, newest.job_id]


def _story(repo: Repository, artifact: Artifact) -> Iterator[tuple[str, str]]:
    from stado.cli import render
    from stado.cli.stories import ago_text
    from stado.jobs.artifacts import newest_version

    newest = newest_version(repo, artifact.name)
    is_newest = artifact.version >= newest
    yield "artifact", _label(artifact) + ("" if is_newest else f" (the newest is {newest})")
    partial = ", which did not complete" if artifact.partial else ""
    part = f", {artifact.path} of it" if artifact.path else ""
    yield "output of", f"job {artifact.job_id}, epoch {artifact.epoch}{partial}{part}"
    yield "run", artifact.run_id
    yield "published", f"{ago_text(artifact.published_at, repo.now())} by {artifact.published_by}"
    yield "files", _size_text(artifact)
    for file in artifact.files[:_FILES_SHOWN]:
        yield "", f"{file.path}  {render.size_text(file.size)}  {file.sha256}"
    if len(artifact.files) > _FILES_SHOWN:
        yield "", f"{len(artifact.files) - _FILES_SHOWN:,} more (--json has all)"


def _fields(artifact: Artifact) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "name": artifact.name,
        "version": artifact.version,
        "job_id": artifact.job_id,
        "epoch": artifact.epoch,
        "run_id": artifact.run_id,
        "path": artifact.path,
        "partial": artifact.partial,
        "published_at": instant_text(artifact.published_at),
        "published_by": artifact.published_by,
        "manifest_sha256": artifact.manifest_sha256,
        "size": _size(artifact),
        "files": [
            {"path": file.path, "key": file.key, "size": file.size, "sha256": file.sha256}
            for file in artifact.files
        ],
    }


def _row_fields(row: Name) -> dict[str, Any]:
    from stado.cli.render import instant_text

    newest = row.newest
    return {
        "name": row.name,
        "version": row.version,
        "versions": row.versions,
        "job_id": newest.job_id if newest else None,
        "partial": newest.partial if newest else None,
        "count": len(newest.files) if newest else None,
        "size": _size(newest) if newest else None,
        "published_at": instant_text(newest.published_at) if newest else None,
        "published_by": newest.published_by if newest else None,
        "problem": row.problem,
    }


def _damage_fields(damage: Damage) -> dict[str, Any]:
    return {"path": damage.path, "key": damage.key, "why": damage.why}
