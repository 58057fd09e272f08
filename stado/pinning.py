"""What jobs take along, from a submitter's words to exact content.

Somebody names a folder, an artifact, a checkpoint; a spec names bytes by their digest, and never
means something else later. The command line, the Python API and whatever else submits pin here,
once, before anything is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from stado.errors import Refused

if TYPE_CHECKING:
    from stado.core.inputs import Wanted
    from stado.core.spec import Request
    from stado.jobs.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpinned:
    """What is named by words that can mean something else tomorrow. Empty: nothing is."""

    workdir: str | PathLike[str] | None = None
    """The folder whose files go along."""
    workdir_limit_mb: float | None = None
    """MiB that they may have together; None: 64."""
    require_clean: bool = False
    """Whether the folder must be as the commit that is checked out there."""
    repo: str | None = None
    repo_ref: str | None = None
    repo_workdir: str | None = None
    input_artifacts: tuple[Wanted, ...] = ()
    start_from_ref: str | None = None
    """`policy_x:best`: the save that the jobs start from."""
    after_refs: tuple[str, ...] = ()
    """`JOB`, `JOB:ok`, `JOB:any` or `JOB:fail`: what has to end first, and how."""


PINNED_AS: Mapping[str, str] = {
    "workdir": "snapshot",
    "workdir_limit_mb": "snapshot",
    "require_clean": "snapshot",
    "repo_ref": "repo",
    "repo_workdir": "repo",
    "input_artifacts": "inputs",
    "start_from_ref": "start_from",
    "after_refs": "after",
}
"""The field of the spec that each field of `Unpinned` ends up in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitter:
    """Who asks, as far as pinning has to know."""

    job_named: Callable[[Repository, str], str]
    """The one job that somebody means by what they typed: its id. Raises `Refused`."""
    tell: Callable[[str], None] = lambda _: None
    """A sentence for people, of what was taken and might surprise."""


def exact_job(repo: Repository, text: str) -> str:
    """For who names jobs by their ids and nothing else."""
    from stado.jobs.finding import find_job

    if find_job(repo, text) is None:
        raise Refused("job_unknown", f"there is no job {text!r} in {repo.store.address}")
    return text


def pin(
    repo: Repository,
    request: Request,
    unpinned: Unpinned,
    submitter: Submitter | None = None,
    *,
    run_id: str | None = None,
) -> Request:
    """The request with everything pinned to the content that it has now. What the jobs take along
    is in the store when this returns, and nothing is queued yet: an interruption leaves objects
    that nobody names. Without a `submitter` jobs are named by their ids, and nobody is told.

    For a run that is there already (`run_id`) no code is brought to the store: either it is this
    request, and has all of it, or it will be refused. Raises `Refused`, naming the words and the
    remedy."""
    from stado.code_pinning import pin_repo, pin_workdir

    submitter = submitter or Submitter(job_named=exact_job)
    _tell_of_tag(request, submitter)
    request = pin_repo(request, unpinned)
    request = _with_inputs(repo, request, unpinned.input_artifacts, submitter)
    request = _with_start(repo, request, unpinned.start_from_ref)
    request = _with_after(repo, request, unpinned.after_refs, submitter)
    return pin_workdir(repo, request, unpinned, tell=submitter.tell, run_id=run_id)


def _tell_of_tag(request: Request, submitter: Submitter) -> None:
    """A submitter may have no way to the registry, so that a tag is not resolved here."""
    from stado.core.images import has_digest

    image = request.shared.image
    if image is not None and not has_digest(image):
        submitter.tell(
            f"image {image} is named by a tag, which may move: name it with @sha256:… to run the "
            "same one each time"
        )


def _with_inputs(
    repo: Repository, request: Request, wanted: Sequence[Wanted], submitter: Submitter
) -> Request:
    """Ordered by name: how they were written makes no other request."""
    if not wanted:
        return request
    from stado.core.spec import check_inputs
    from stado.jobs.inputs import pin_input

    def job_named(text: str) -> str:
        return submitter.job_named(repo, text)

    pinned = [pin_input(repo, one, job_named=job_named, tell=submitter.tell) for one in wanted]
    inputs = sorted(pinned, key=lambda one: one.name)
    check_inputs(inputs)
    return request.evolve(shared=request.shared.evolve(inputs=inputs))


def _with_start(repo: Repository, request: Request, ref: str | None) -> Request:
    if ref is None:
        return request
    from stado.jobs.policies import pin_start

    return request.evolve(shared=request.shared.evolve(start_from=pin_start(repo, ref)))


def _with_after(
    repo: Repository, request: Request, refs: Sequence[str], submitter: Submitter
) -> Request:
    """Ordered by id: how they were written makes no other request."""
    if not refs:
        return request
    from stado.core.spec import After, check_after
    from stado.core.states import AfterWhen

    forms = ", ".join(f"JOB:{when}" for when in AfterWhen)

    def pinned(ref: str) -> After:
        word, _, when = ref.partition(":")
        if not word.strip():
            raise Refused("after_invalid", f"--after {ref!r} names no job: write JOB, or {forms}")
        if when not in ("", *AfterWhen) or ref.endswith(":"):
            known = ", ".join(AfterWhen)
            text = f"--after {ref!r}: {when!r} is no way to end; after the colon stands {known}"
            raise Refused("after_invalid", text)
        return After(job_id=submitter.job_named(repo, word), when=AfterWhen(when or "ok"))

    stated = {(one.job_id, one.when): one for one in map(pinned, refs)}
    after = [stated[name] for name in sorted(stated)]
    check_after(after)
    return request.evolve(shared=request.shared.evolve(after=after))
