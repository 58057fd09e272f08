"""A commit of a repository, from wherever that is into the folder that a command will run in.

The host keeps a repository for each address, with the commits that were asked for and nothing
older; git gets no terminal to ask at, runs no hooks, and uses no transport but those that are
allowed. Each call of git is a process of the job: what it prints is in the job's log.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.core.repos import commit_flaw, folder_flaw, url_flaw
from stado.core.spec import GitRepo
from stado.jobs.folders import remove_folder
from stado_agent.host_cache import HostCache, set_aside

log = logging.getLogger(__name__)

_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.askPass="),
    *("protocol.ext.allow=never", "protocol.fd.allow=never", "credential.interactive=never"),
    *("gc.auto=0", "maintenance.auto=false", "fetch.unpackLimit=1", "advice.detachedHead=false"),
    *("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", "submodule.recurse=false"),
)

_SSH = (
    "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
)

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
    "GIT_ADVICE": "0",
    "LC_ALL": "C",
}

_OF_THE_HOST = ("GIT_SSH", "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_", "GIT_CONFIG_GLOBAL")
"""What an operator may have set so that git gets to its servers."""

_EXACT_COMMITS_REFUSED = "unadvertised object"
"""What git says of a server that gives no commit but the tips of its branches."""

_BARE = ("--git-dir=.",)
"""Said, because a host may be told to find no repository without a work tree."""

_FULL_FETCH = ("+refs/heads/*:refs/stado-heads/*", "+refs/tags/*:refs/stado-tags/*")


def git_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without variables that name another repository than the one that is worked on."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("GIT_") or name.startswith(_OF_THE_HOST)
    }
    return {"GIT_SSH_COMMAND": _SSH, **kept, **_ENVIRONMENT}


class CheckoutFailed(Exception):
    """The commit cannot be had, in git's own words."""


@dataclass(frozen=True, slots=True)
class GitAnswer:
    """How a call of git ended."""

    exit_code: int
    said: Sequence[str]
    """Its last lines."""

    @property
    def telling_line(self) -> str:
        """The first complaint; of a connection that was closed what came before it."""
        lines = [line.strip() for line in self.said if line.strip()]
        for number, line in enumerate(lines):
            if line.startswith(("fatal:", "error:", "remote:", "ERROR:")):
                generic = line.startswith("fatal: Could not read from remote repository")
                return lines[number - 1] if generic and number else line
        return lines[-1] if lines else f"git exited with {self.exit_code}"


RunGit = Callable[[Sequence[str], Path], GitAnswer]
"""Runs one command line in a folder, as a process of the job."""


class GitCheckout:
    """`run` raises what ends the job; `heed` as well, while another job has the repository."""

    def __init__(self, cache: HostCache, run: RunGit, heed: Callable[[], None]) -> None:
        self._cache = cache
        self._run = run
        self._heed = heed

    def check_out(self, repo: GitRepo, folder: Path) -> None:
        """Makes an empty folder a clone with exactly this commit. Raises `CheckoutFailed`,
        `OSError` of this host."""
        _check(repo)
        self._init(folder, repo.commit, "--quiet")
        with self._cache.entry(_name_of(repo.url), self._heed) as entry:
            kept = entry / "repo.git"
            if not self._take_kept(kept, repo, folder):
                self._make_anew(kept, repo)
                self._expect(self._take(kept, repo, folder))
        self._expect(self._git(folder, "remote", "add", "--", "origin", repo.url))
        self._expect(self._git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD"))

    def _take_kept(self, kept: Path, repo: GitRepo, folder: Path) -> bool:
        """False when the host has no repository that has the commit or can get it: none at all, or
        one that was damaged, be it by a killed git."""
        if not kept.exists():
            return False
        _remove_locks(kept)
        if not self._has(kept, repo) and self._fetch(kept, repo).exit_code != 0:
            return False
        answer = self._take(kept, repo, folder)
        if _met_a_full_disk(answer):
            raise CheckoutFailed(answer.telling_line)
        if answer.exit_code != 0:
            log.warning(
                "event=kept_repository_damaged url=%r error=%r", repo.url, answer.telling_line
            )
        return answer.exit_code == 0

    def _take(self, kept: Path, repo: GitRepo, folder: Path) -> GitAnswer:
        options = ("--quiet", "--no-tags", "--depth=1")
        return self._git(folder, "fetch", *options, "--", str(kept), _ref(repo))

    def _make_anew(self, kept: Path, repo: GitRepo) -> None:
        """The repository of this host, which takes the place of one that cannot be used."""
        made = kept.with_name("new.git")
        remove_folder(made)
        made.mkdir(mode=0o700)
        self._init(made, repo.commit, "--quiet", "--bare")
        answer = self._fetch(made, repo)
        if answer.exit_code != 0:
            remove_folder(made)
        self._expect(answer)
        aside = set_aside(kept)
        made.rename(kept)
        remove_folder(aside)

    def _has(self, kept: Path, repo: GitRepo) -> bool:
        """A reference is written when all that it needs is there."""
        answer = self._git(kept, *_BARE, "rev-parse", "--quiet", "--verify", _ref(repo))
        return answer.exit_code == 0

    def _fetch(self, kept: Path, repo: GitRepo) -> GitAnswer:
        """The commit alone, or all branches and tags from a server that gives no other."""
        exactly = f"+{repo.commit}:{_ref(repo)}"
        begin = (*_BARE, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
        answer = self._git(kept, *begin, "--depth=1", "--", repo.url, exactly)
        if answer.exit_code == 0 or not _refuses_exact_commits(answer):
            return answer
        answer = self._git(kept, *begin, "--", repo.url, *_FULL_FETCH)
        if answer.exit_code != 0:
            return answer
        return self._git(kept, *_BARE, "update-ref", _ref(repo), f"{repo.commit}^{{commit}}")

    def _init(self, folder: Path, commit: str, *options: str) -> None:
        algorithm = () if len(commit) == 40 else ("--object-format=sha256",)
        self._expect(self._git(folder, "init", "--template=", *algorithm, *options))

    def _expect(self, answer: GitAnswer) -> None:
        if answer.exit_code != 0:
            raise CheckoutFailed(answer.telling_line)

    def _git(self, folder: Path, *arguments: str) -> GitAnswer:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        return self._run(["git", *settings, *arguments], folder)


def folder_within(work: Path, folder: str | None) -> Path:
    """Where a command runs in a clone. Raises `CheckoutFailed` when the commit has no such folder,
    or a link in its place that leaves the clone."""
    if folder is None:
        return work
    place = work / folder
    if not place.is_dir() or not place.resolve().is_relative_to(work.resolve()):
        raise CheckoutFailed(f"the commit has no folder {folder!r}")
    return place


def _check(repo: GitRepo) -> None:
    """Specs come from the bucket, where others may write."""
    for flaw in (
        url_flaw(repo.url),
        commit_flaw(repo.commit),
        None if repo.folder is None else folder_flaw(repo.folder),
    ):
        if flaw is not None:
            raise CheckoutFailed(flaw)


def _refuses_exact_commits(answer: GitAnswer) -> bool:
    return any(_EXACT_COMMITS_REFUSED in line for line in answer.said)


def _met_a_full_disk(answer: GitAnswer) -> bool:
    full = map(os.strerror, (errno.ENOSPC, errno.EDQUOT))
    return answer.exit_code != 0 and any(why in line for why in full for line in answer.said)


def _ref(repo: GitRepo) -> str:
    return f"refs/stado/{repo.commit}"


def _name_of(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:32]


def _remove_locks(kept: Path) -> None:
    """Whoever made them is gone: we have the repository to ourselves."""
    for pattern in ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*"):
        for path in kept.glob(pattern):
            path.unlink(missing_ok=True)
