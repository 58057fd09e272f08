"""What git says of a folder of this machine: asked for lists and names, never for contents, so
that no setting of the user's (of diffs, quoting, line ends) changes what is taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stado.errors import Refused

_SECONDS_MAX = 120.0
_GITLINK_MODE = b"160000"
_NO_REPOSITORY = b"not a git repository"

_SETTINGS = (
    *("-c", "core.fsmonitor=false"),  # a program that the repository names
    *("-c", "core.quotepath=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.splitIndex=false"),  # a copy of an index is written whole
)


@dataclass(frozen=True, slots=True)
class GitListing:
    """What belongs to a work tree below a folder, with paths relative to that."""

    paths: list[bytes]
    """Tracked, and untracked that are not ignored; some may not be there any more."""
    untracked: frozenset[bytes]
    submodules: list[bytes]
    """And other repositories within: git does not say what is in them."""
    unwatched: list[bytes]
    """Tracked, and git was told not to look whether they change (assume-unchanged,
    skip-worktree)."""
    not_checked_out: list[bytes]
    """Of these what is not there, and need not be (skip-worktree): of a sparse checkout."""


@dataclass(frozen=True, slots=True)
class _Tracked:
    """An entry of the index. Of its tag: in small letters it is assume-unchanged, S is
    skip-worktree."""

    tag: bytes
    mode: bytes
    path: bytes

    @property
    def skipped(self) -> bool:
        return self.tag in b"Ss"

    @property
    def unwatched(self) -> bool:
        return self.skipped or self.tag.islower()


class GitFolder:
    """A folder in a work tree of git."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def find(cls, folder: Path) -> GitFolder | None:
        """None for one that is in no work tree. Raises `Refused` when git does not answer, for
        then nobody knows what is ignored there."""
        found = cls(folder)
        try:
            answer = found._run("rev-parse", "--is-inside-work-tree")
        except FileNotFoundError:
            if _has_git_above(folder):
                raise _refused(folder, "git is not installed here") from None
            return None
        if answer.returncode != 0:
            if _NO_REPOSITORY in answer.stderr and not _has_git_above(folder):
                return None
            raise _refused(folder, _last_line(answer.stderr))
        return found if answer.stdout.strip() == b"true" else None

    def listing(self) -> GitListing:
        tracked = list(self._tracked())
        files = [entry for entry in tracked if entry.mode != _GITLINK_MODE]
        unwatched = [entry.path for entry in files if entry.unwatched]
        skipped = [entry.path for entry in files if entry.skipped and self._lacks(entry.path)]
        untracked = self._names("ls-files", "--others", "--exclude-standard", "-z")
        links = [entry.path for entry in tracked if entry.mode == _GITLINK_MODE]
        nested = [path.rstrip(b"/") for path in untracked if path.endswith(b"/")]
        others = frozenset(path for path in untracked if not path.endswith(b"/"))
        return GitListing(
            paths=sorted({entry.path for entry in files} | others),
            untracked=others,
            submodules=sorted({*links, *nested}),
            unwatched=sorted({*unwatched} - {*skipped}),
            not_checked_out=sorted({*skipped}),
        )

    def commit(self) -> str | None:
        """What is checked out; None before the first commit."""
        answer = self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return answer.stdout.strip().decode("ascii") if answer.returncode == 0 else None

    def changed(self, unwatched: Sequence[bytes]) -> list[bytes]:
        """The paths, from the top of the work tree on, in which what lies below the folder differs
        from the commit: changed, added, deleted, or untracked. The `unwatched` ones, of the
        listing, are looked at all the same."""
        with self._index_that_watches(unwatched) as index:
            names = self._names(
                *("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"),
                *("--ignore-submodules=all", "--", "."),
                index=index,
            )
        return [name[3:] for name in names if not name.endswith(b"/")]

    def prefix(self) -> bytes:
        """Of the folder within the work tree: b"" or b"a/folder/"."""
        return self._answer("rev-parse", "--show-prefix").rstrip(b"\n")

    def _tracked(self) -> Iterator[_Tracked]:
        for entry in self._names("ls-files", "--cached", "--stage", "-v", "-z"):
            about, _, path = entry.partition(b"\t")
            tag, mode, _ = about.split(b" ", 2)
            yield _Tracked(tag, mode, path)

    def _lacks(self, path: bytes) -> bool:
        return not os.path.lexists(os.path.join(os.fsencode(self._folder), path))

    @contextmanager
    def _index_that_watches(self, unwatched: Sequence[bytes]) -> Iterator[Path | None]:
        """A copy of the index without the marks; None where that has none."""
        if not unwatched:
            yield None
            return
        own = self._folder / os.fsdecode(self._answer("rev-parse", "--git-path", "index")[:-1])
        with TemporaryDirectory(prefix="stado-index-") as temporary:
            index = Path(temporary) / "index"
            shutil.copy2(own, index)  # its time tells git of which files the state is certain
            for option in ("--no-assume-unchanged", "--no-skip-worktree"):
                paths = b"".join(path + b"\0" for path in unwatched)
                self._answer("update-index", option, "-z", "--stdin", stdin=paths, index=index)
            yield index

    def _names(self, *arguments: str, index: Path | None = None) -> list[bytes]:
        return [name for name in self._answer(*arguments, index=index).split(b"\0") if name]

    def _answer(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> bytes:
        answer = self._run(*arguments, stdin=stdin, index=index)
        if answer.returncode != 0:
            raise _refused(self._folder, _last_line(answer.stderr))
        return answer.stdout

    def _run(
        self, *arguments: str, stdin: bytes = b"", index: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                ["git", *_SETTINGS, *arguments],
                cwd=self._folder,
                env=_environment(index),
                input=stdin,
                capture_output=True,
                timeout=_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"git {arguments[0]} takes longer than {_SECONDS_MAX:g} s"
            raise _refused(self._folder, what) from None


def _has_git_above(folder: Path) -> bool:
    """Then it may be ignored what lies there, whatever git says of a repository that is broken."""
    return any((above / ".git").exists() for above in (folder, *folder.parents))


def _environment(index: Path | None) -> dict[str, str]:
    """Ours without git's variables: a hook that submits has some that name another repository.
    Messages in English, for we look for one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    return {**kept, **own, **({} if index is None else {"GIT_INDEX_FILE": str(index)})}


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "git failed without a word"


def _refused(folder: Path, why: str) -> Refused:
    return Refused("workdir_unreadable", f"what belongs to {folder} cannot be told: {why}")
