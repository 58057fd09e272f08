"""Which files of a folder of this machine somebody takes along: what git would, or all of it but
what hardly anybody wants, without what `.stadoignore` names.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from stado.errors import Refused
from stado.system.git import GitFolder
from stado.system.secret_files import why_secret

IGNORE_FILE = ".stadoignore"
_IGNORE_BYTES_MAX = 1 << 20
_PATHS_MAX = 200_000
_LINKS_MAX = 40
"""On one way; more go round and round."""

_NOT_WANTED = (
    *(".git", ".hg", ".svn", ".bzr"),
    *("__pycache__/", "*.pyc", ".venv/", "venv/", "*.egg-info/", ".eggs/"),
    *(".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/", ".nox/", ".hypothesis/"),
    *("node_modules/", ".ipynb_checkpoints/", ".terraform/", ".DS_Store"),
)
"""Where no git says what belongs to a folder. `!node_modules/` in `.stadoignore` takes it back."""


@dataclass(frozen=True, slots=True)
class SourceTree:
    """What is taken of a folder, and what has to be said of it. Paths are relative to it."""

    sizes: dict[bytes, int]
    """Of each file and link that is taken, in bytes (0 of a link)."""
    secrets: list[str]
    """Files that look like secrets, with why: `<path> (<why>)`."""
    left_out: list[str]
    """What belongs to the folder and is not taken, with why: `<path>: <why>`."""
    in_git: bool = False
    commit: str | None = None
    changed: list[str] = field(default_factory=list)
    """Of what is taken, or was deleted: in what it differs from the commit."""
    untracked: int = 0
    """How many of these git does not know."""
    unwatched: int = 0
    """How many `git status` does not show, for they are marked assume-unchanged or
    skip-worktree."""

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    def largest(self, count: int) -> list[tuple[str, int]]:
        ordered = sorted(self.sizes.items(), key=lambda item: (-item[1], item[0]))
        return [(shown_path(path), size) for path, size in ordered[:count]]


def read_source_tree(folder: Path) -> SourceTree:
    """Looks at a folder as it stands; reads no contents but of files that may be secrets. Raises
    `Refused`, naming what cannot be read."""
    folder = _checked(folder)
    ignored = _Ignored(folder)
    repository = GitFolder.find(folder)
    taking = _Taking(folder, ignored)
    try:
        if repository is None:
            ignored.add_in_front(_NOT_WANTED)
            taking.take(_walk(folder, ignored))
            return taking.tree()
        return _tree_in_git(taking, repository, ignored)
    except OSError as error:
        name = os.fsdecode(error.filename) if error.filename else str(folder)
        raise Refused(
            "workdir_unreadable",
            f"{name} cannot be read: {error.strerror}: name it in {IGNORE_FILE}, or mend it",
        ) from None


def shown_path(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _checked(folder: Path) -> Path:
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise Refused("workdir_missing", f"--workdir {str(folder)!r} {what}: name a folder")
    return folder.resolve()


def _tree_in_git(taking: _Taking, repository: GitFolder, ignored: _Ignored) -> SourceTree:
    listing = repository.listing()
    taking.take(path for path in listing.paths if not ignored.has(path))
    for path in listing.submodules:
        if not ignored.has(path + b"/"):
            taking.leave_out(path, "another repository (a submodule): its files are not taken")
    for path in listing.not_checked_out:
        if not ignored.has(path):
            taking.leave_out(path, "git does not check it out here (skip-worktree)")
    prefix = repository.prefix()
    changed = [name.removeprefix(prefix) for name in repository.changed(listing.unwatched)]
    relevant = sorted(path for path in changed if not ignored.has(path))
    return taking.tree(
        in_git=True,
        commit=repository.commit(),
        changed=[shown_path(path) for path in relevant],
        untracked=sum(path in listing.untracked for path in relevant),
        unwatched=len({*listing.unwatched}.intersection(relevant)),
    )


class _Ignored:
    """The patterns of `.stadoignore`, as in a `.gitignore`; the last one that fits counts."""

    def __init__(self, folder: Path) -> None:
        self._lines = _ignore_lines(folder / IGNORE_FILE)
        _check_patterns(folder / IGNORE_FILE, self._lines)
        self._spec = GitIgnoreSpec.from_lines(self._lines)

    def add_in_front(self, lines: Iterable[str]) -> None:
        self._lines = [*lines, *self._lines]
        self._spec = GitIgnoreSpec.from_lines(self._lines)

    def has(self, path: bytes) -> bool:
        """A folder's path ends with a slash."""
        return bool(self._lines) and self._spec.check_file(os.fsdecode(path)).include is True

    def wants(self, path: bytes) -> bool:
        """Whether a pattern with `!` takes it expressly."""
        return bool(self._lines) and self._spec.check_file(os.fsdecode(path)).include is False


def _ignore_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_IGNORE_BYTES_MAX + 1)
        if len(data) > _IGNORE_BYTES_MAX:
            raise Refused(
                "ignore_file_unreadable", f"{path} has more than {_IGNORE_BYTES_MAX} bytes"
            )
        return data.decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            "ignore_file_unreadable", f"{path} cannot be read: {error}: mend or remove it"
        ) from None


def _check_patterns(path: Path, lines: Sequence[str]) -> None:
    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error) as error:
            raise Refused(
                "ignore_file_unreadable",
                f"{path}, line {number}: {line!r} is no pattern ({error}): mend or remove it",
            ) from None


def _walk(folder: Path, ignored: _Ignored) -> Iterator[bytes]:
    """All that is no folder, without what is ignored; links are not followed. Virtual
    environments of any name are passed over."""
    root = os.fsencode(folder)
    pending = [b""]
    while pending:
        below = pending.pop()
        with os.scandir(os.path.join(root, below)) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        if below and any(entry.name == b"pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            path = below + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if ignored.has(path + b"/" if is_folder else path):
                continue
            if is_folder:
                pending.append(path + b"/")
            else:
                yield path


class _Taking:
    """Looks at one path after the other."""

    def __init__(self, folder: Path, ignored: _Ignored) -> None:
        self._folder = folder
        self._root = os.fsencode(folder)
        self._ignored = ignored
        self._sizes: dict[bytes, int] = {}
        self._secrets: list[str] = []
        self._left_out: list[str] = []
        self._ways: dict[bytes, list[bytes]] = {}
        """Of links that are taken: where they lead."""
        self._links: dict[bytes, bool] = {}
        """Of folders on the way to a path: whether one is a link by now."""

    def take(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            self._look_at(path)
            if len(self._sizes) > _PATHS_MAX:
                raise Refused(
                    "tree_too_large",
                    f"{self._folder} holds more than {_PATHS_MAX} files: name what is not needed "
                    f"in {IGNORE_FILE}",
                )

    def leave_out(self, path: bytes, why: str) -> None:
        self._left_out.append(f"{shown_path(path)}: {why}")

    def tree(
        self,
        *,
        in_git: bool = False,
        commit: str | None = None,
        changed: Sequence[str] = (),
        untracked: int = 0,
        unwatched: int = 0,
    ) -> SourceTree:
        self._tell_of_broken_links()
        return SourceTree(
            self._sizes,
            self._secrets,
            self._left_out,
            in_git=in_git,
            commit=commit,
            changed=list(changed),
            untracked=untracked,
            unwatched=unwatched,
        )

    def _look_at(self, path: bytes) -> None:
        full = os.path.join(self._root, path)
        try:
            status = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return  # tracked, and deleted here
        if self._is_behind_link(path):
            return  # so is what a link has taken the place of, wherever that leads
        if stat.S_ISLNK(status.st_mode):
            self._take_link(path)
        elif stat.S_ISREG(status.st_mode):
            self._take_file(path, status.st_size)
        elif not stat.S_ISDIR(status.st_mode):  # of a folder in a file's place git lists the files
            self.leave_out(path, "neither a file nor a link")

    def _is_behind_link(self, path: bytes) -> bool:
        folder = path.rpartition(b"/")[0]
        if not folder:
            return False
        if folder not in self._links:
            is_link = os.path.islink(os.path.join(self._root, folder))
            self._links[folder] = is_link or self._is_behind_link(folder)
        return self._links[folder]

    def _take_link(self, path: bytes) -> None:
        way = _way_of(self._root, path)
        if way is None:
            self.leave_out(path, "a link that leads out of the folder")
        else:
            self._sizes[path] = 0
            self._ways[path] = way

    def _tell_of_broken_links(self) -> None:
        """Of those that lead somewhere here, and nowhere in what is taken."""
        folders = _folders_of(self._sizes) if self._ways else set()
        for path, way in self._ways.items():
            missing = [one for one in way if one not in self._sizes and one not in folders]
            if missing and os.path.exists(os.path.join(self._root, path)):
                self.leave_out(missing[0], f"the link {shown_path(path)} leads there")

    def _take_file(self, path: bytes, size: int) -> None:
        self._sizes[path] = size
        if not self._ignored.wants(path):
            why = why_secret(self._folder, os.fsdecode(path))
            if why is not None:
                self._secrets.append(f"{shown_path(path)} ({why})")


def _way_of(root: bytes, path: bytes) -> list[bytes] | None:
    """Where a path leads within a folder: each link on the way, and the end. None: out of it, be
    it only to come back, for there it has another name."""
    place, ahead = b"", path.split(b"/")
    links: list[bytes] = []
    while ahead and len(links) < _LINKS_MAX:
        part = ahead.pop(0)
        if part == b"..":
            if not place:
                return None
            place = os.path.dirname(place)
        elif part not in (b"", b"."):
            place = os.path.join(place, part)
        full = os.path.join(root, place)
        if os.path.islink(full):
            target = os.readlink(full)
            if target.startswith(b"/"):
                return None
            links.append(place)
            place, ahead = os.path.dirname(place), [*target.split(b"/"), *ahead]
    return [*links, place]


def _folders_of(paths: Iterable[bytes]) -> set[bytes]:
    folders = {b""}
    for path in paths:
        while (path := os.path.dirname(path)) not in folders:
            folders.add(path)
    return folders
