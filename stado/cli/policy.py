"""`stado policy`: what train jobs left for others to start from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import PolicySeal, SaveRef
    from stado.core.sidecar import CheckpointMeta
    from stado.jobs.policies import PolicyListing

_LIMIT_DEFAULT = 20
_LIMIT_MAX = 1000


@click.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, _LIMIT_MAX),
    default=_LIMIT_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many policies to show.",
)
@json_option
@target_options
def list_policies(*, limit: int, as_json: bool, target: Target) -> None:
    """List the policies of train jobs that have ended, the newest jobs first.

    BEST is the save with the best metric, LATEST the last one; `-` stands where there is none.
    """
    from stado.cli import render
    from stado.jobs.policies import newest_policies

    with opened_repository(target) as repo:
        listing = newest_policies(repo, limit=limit)
        if as_json:
            render.print_json(_listing_fields(listing))
            return
        _print_listing(listing, repo.now())


@click.command()
@click.argument("ref", metavar="POLICY:best|latest")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@target_options
def get(*, ref: str, folder: Path, as_json: bool, target: Target) -> None:
    """Download a checkpoint of a policy into DIR, which must be new or empty.

    Each file is checked against its SHA-256. POLICY is `policy_<job id>`, or `policy_` and a part
    of the id.

    \b
      stado policy get policy_zrkkcmezlzooeqjq:best ./model
    """
    from stado.cli import render
    from stado.jobs.policies import download_save, find_save

    with opened_repository(target) as repo, _usable(folder):
        seal, kind, save = find_save(repo, ref)
        checkpoint = download_save(repo, seal, save, folder)
    if as_json:
        files = [
            {"path": file.path, "size": file.size, "sha256": file.sha256}
            for file in checkpoint.files
        ]
        fields = {"policy_id": seal.policy_id, "kind": kind.value, "folder": str(folder)}
        render.print_json({**fields, **save_fields(save), "files": files})
        return
    render.print_line(str(folder))
    count = render.plural(len(checkpoint.files), "file")
    size = render.size_text(checkpoint.size)
    render.tell(f"{seal.policy_id}:{kind.value}: {count}, {size}{_told(save.meta)}")


@click.command()
@click.argument("ref", metavar="POLICY:best|latest")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@json_option
@target_options
def export(*, ref: str, path: Path, as_json: bool, target: Target) -> None:
    """Write a checkpoint of a policy with a manifest, `stado-policy.json`, into PATH: a tar file
    where PATH ends with .tar, .tar.gz or .tgz, else a folder, which must be new or empty.

    \b
      stado policy export policy_zrkkcmezlzooeqjq:best model.tar.gz
    """
    from stado.cli import render
    from stado.jobs.policies import find_save
    from stado.jobs.policy_exports import export_save

    with opened_repository(target) as repo, _usable(path):
        seal, kind, save = find_save(repo, ref)
        manifest = export_save(repo, seal, kind, save, path)
    if as_json:
        render.print_json({**manifest, "path": str(path)})
        return
    render.print_line(str(path))
    count = render.plural(len(manifest["files"]), "file")
    render.tell(f"{seal.policy_id}:{kind.value}: {count} and a manifest{_told(save.meta)}")


def save_fields(save: SaveRef) -> dict[str, Any]:
    """A save in JSON."""
    from stado.cli.render import instant_text

    meta = save.meta
    return {
        "saved_at": instant_text(save.at),
        "size": save.size,
        "step": meta.step if meta is not None else None,
        "metric": meta.metric if meta is not None else None,
        "value": meta.value if meta is not None else None,
        "higher_is_better": meta.higher_is_better if meta is not None else None,
        "manifest": save.manifest,
        "sha256": save.sha256,
    }


def save_text(meta: CheckpointMeta | None) -> str:
    """`step 3, reward 9.5`; empty when nothing is known of it."""
    if meta is None:
        return ""
    said = [] if meta.step is None else [f"step {meta.step:,}"]
    if meta.value is not None:
        said.append(f"{meta.metric or 'value'} {meta.value:g}")
    return ", ".join(said)


def seal_fields(seal: PolicySeal) -> dict[str, Any]:
    """A policy in JSON."""
    from stado.cli.render import instant_text

    return {
        "policy_id": seal.policy_id,
        "job_id": seal.job_id,
        "sealed": True,
        "ended_at": instant_text(seal.at),
        "best": save_fields(seal.best) if seal.best is not None else None,
        "latest": save_fields(seal.latest) if seal.latest is not None else None,
    }


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """A folder or a disk that refuses is told as such."""
    from stado.errors import Refused

    try:
        yield
    except OSError as error:
        raise Refused(
            "checkpoint_folder_unusable",
            f"{error.filename or path} cannot be written: {error.strerror}: name another place",
        ) from None


def _told(meta: CheckpointMeta | None) -> str:
    text = save_text(meta)
    return f" ({text})" if text else ""


def _cell(save: SaveRef | None) -> str:
    if save is None:
        return "-"
    return save_text(save.meta) or "saved"


def _listing_fields(listing: PolicyListing) -> dict[str, Any]:
    return {
        "policies": [seal_fields(seal) for seal in listing.seals],
        "unreadable": [str(error) for error in listing.unreadable],
        "more": listing.more,
    }


def _print_listing(listing: PolicyListing, now: datetime) -> None:
    from stado.cli import render
    from stado.cli.tables import Column

    if listing.seals:
        columns = [
            Column("POLICY"),
            Column("ENDED", right=True),
            Column("BEST"),
            Column("LATEST"),
            Column("SIZE", right=True),
        ]
        render.print_table(columns, [_row(seal, now) for seal in listing.seals])
    else:
        render.tell("no policy yet: a job that is submitted with --type train makes one")
    for error in listing.unreadable:
        render.tell(f"stado: {error}")
    if listing.more:
        render.tell(f"showing the newest {len(listing.seals)}; --limit N shows more")


def _row(seal: PolicySeal, now: datetime) -> list[str]:
    from stado.cli import render

    age = render.short_duration((now - seal.at).total_seconds())
    size = render.size_text(seal.latest.size) if seal.latest is not None else ""
    return [seal.policy_id, f"{age} ago", _cell(seal.best), _cell(seal.latest), size]
