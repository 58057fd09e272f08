"""The code that jobs take along: a folder's files as a snapshot, or a commit of a repository.

Everything is looked at, judged and packed before the store hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from stado.core.spec import GitRepo, Request, Snapshot, check_repo, check_sources
from stado.core.trees import shown
from stado.errors import Refused
from stado.jobs import snapshots
from stado.jobs.archives import PackedTree, pack
from stado.sizes import file_size
from stado.system.source_tree import IGNORE_FILE, SourceTree, read_source_tree

if TYPE_CHECKING:
    from stado.jobs.repository import Repository
    from stado.pinning import Unpinned

WORKDIR_LIMIT_MB_DEFAULT = 64.0
_MIB = 1 << 20
_LARGEST_NAMED = 10
_NAMED_MAX = 10

Tell = Callable[[str], None]


def pin_repo(request: Request, unpinned: Unpinned) -> Request:
    """Raises `Refused` for what could mean another commit tomorrow."""
    if unpinned.repo is None:
        for option, value in (
            ("--repo-ref", unpinned.repo_ref),
            ("--repo-workdir", unpinned.repo_workdir),
        ):
            if value is not None:
                raise Refused(
                    "repo_missing", f"{option} says nothing without --repo: name the repository"
                )
        return request
    _check_sources(request, unpinned)
    if unpinned.repo_ref is None:
        raise Refused(
            "repo_ref_missing",
            "--repo needs --repo-ref COMMIT, the full commit: `git rev-parse HEAD` in a clone "
            "tells it",
        )
    check_repo(unpinned.repo, unpinned.repo_ref, unpinned.repo_workdir)
    made = GitRepo(url=unpinned.repo, commit=unpinned.repo_ref, folder=unpinned.repo_workdir)
    return request.evolve(shared=request.shared.evolve(repo=made))


def pin_workdir(
    repo: Repository, request: Request, unpinned: Unpinned, *, tell: Tell, run_id: str | None
) -> Request:
    """Packs the folder, and brings the archive to the store unless that has it. Raises `Refused`
    for a folder that must not, or cannot, go along."""
    if unpinned.workdir is None:
        _check_no_workdir_words(unpinned)
        return request
    _check_sources(request, unpinned)
    folder = Path(unpinned.workdir)
    tree = read_source_tree(folder)
    _check_tree(tree, unpinned)
    with TemporaryDirectory(prefix="stado-snapshot-") as temporary:
        archive = Path(temporary) / "tree.tar.gz"
        packed = _pack(folder, tree, archive)
        snapshot = Snapshot(
            digest=packed.digest,
            files=packed.files,
            bytes=packed.bytes,
            commit=tree.commit,
            dirty=bool(tree.changed),
        )
        if run_id is None or repo.find_run(run_id) is None:
            for text in _told(folder, tree, snapshot):
                tell(text)
            snapshots.ensure(repo, snapshot, archive)
    return request.evolve(shared=request.shared.evolve(snapshot=snapshot))


def _check_sources(request: Request, unpinned: Unpinned) -> None:
    check_sources(
        workdir=unpinned.workdir is not None,
        repo=unpinned.repo is not None,
        host_dir=request.shared.host_dir is not None,
    )


def _check_no_workdir_words(unpinned: Unpinned) -> None:
    for option, stated in (
        ("--require-clean", unpinned.require_clean),
        ("--workdir-limit-mb", unpinned.workdir_limit_mb is not None),
    ):
        if stated:
            raise Refused(
                "workdir_unnamed", f"{option} says nothing without --workdir: name the folder"
            )


def _check_tree(tree: SourceTree, unpinned: Unpinned) -> None:
    if unpinned.require_clean:
        _check_clean(tree, str(unpinned.workdir))
    if not tree.sizes:
        raise Refused(
            "workdir_empty",
            f"nothing of {str(unpinned.workdir)!r} would be taken: it is empty, or git or "
            f"{IGNORE_FILE} ignore all of it",
        )
    if tree.secrets:
        raise Refused(
            "workdir_holds_secrets",
            f"{_named(tree.secrets)} look{'s' if len(tree.secrets) == 1 else ''} like a secret, "
            "and whoever reads the store could read it: name it in "
            f"{IGNORE_FILE} (with `!` in front, to take it all the same)",
        )
    _check_size(tree, unpinned)


def _check_clean(tree: SourceTree, folder: str) -> None:
    if not tree.in_git or tree.commit is None:
        raise Refused(
            "workdir_not_clean",
            f"--require-clean: {folder!r} is no checkout of a commit, so nothing tells whether it "
            "is clean: commit it, or leave --require-clean out",
        )
    if tree.changed:
        raise Refused(
            "workdir_not_clean",
            f"--require-clean: {folder!r} differs from commit {shown(tree.commit)} in "
            f"{_named(tree.changed)}{_kinds(tree)}: commit that, or leave --require-clean out",
        )


def _check_size(tree: SourceTree, unpinned: Unpinned) -> None:
    stated = unpinned.workdir_limit_mb
    limit_mb = WORKDIR_LIMIT_MB_DEFAULT if stated is None else stated
    if tree.bytes <= limit_mb * _MIB:
        return
    largest = ", ".join(
        f"{path} ({file_size(size)})" for path, size in tree.largest(_LARGEST_NAMED)
    )
    raise Refused(
        "workdir_too_large",
        f"the files of {str(unpinned.workdir)!r} have {file_size(tree.bytes)}, more than "
        f"{limit_mb:g} MiB. The largest: {largest}. Name what the job does not need in "
        f"{IGNORE_FILE}, or raise the limit with --workdir-limit-mb",
    )


def _pack(folder: Path, tree: SourceTree, archive: Path) -> PackedTree:
    try:
        return pack(folder, tree.sizes, archive)
    except OSError as error:
        raise Refused(
            "workdir_unreadable",
            f"{error.filename or folder} cannot be packed: {error.strerror or error}",
        ) from None


def _told(folder: Path, tree: SourceTree, snapshot: Snapshot) -> Iterator[str]:
    yield f"takes along {folder}: {snapshots.text_of(snapshot)}"
    if tree.changed and tree.commit is not None:
        yield (
            f"it is not what commit {shown(tree.commit)} holds: it differs in "
            f"{_named(tree.changed)}{_kinds(tree)}"
        )
    if tree.left_out:
        yield f"not taken: {_named(tree.left_out, '; ')}"


def _kinds(tree: SourceTree) -> str:
    """Of what has changed: what may be a surprise to who looked with git."""
    told = [
        f"{count} of them {what}"
        for count, what in (
            (tree.untracked, "untracked"),
            (tree.unwatched, "not shown by git status, but by git ls-files -v"),
        )
        if count
    ]
    return f" ({', '.join(told)})" if told else ""


def _named(names: Sequence[str], separator: str = ", ") -> str:
    more = len(names) - _NAMED_MAX
    text = separator.join(names[:_NAMED_MAX])
    return text if more <= 0 else f"{text} and {more:,} more"
