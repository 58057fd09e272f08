"""The options by which somebody says what jobs are: of `submit`, and of whatever else makes jobs.

Each is a field of the spec under its own name, or of what has to be pinned first (`stado.pinning`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.profile_option import ProfileOption, known_profiles

if TYPE_CHECKING:
    from stado.core.spec import Request, Spec
    from stado.jobs.repository import Repository
    from stado.pinning import Submitter, Unpinned

_PROFILE = (
    click.option(
        "--profile",
        cls=ProfileOption,
        is_eager=True,
        expose_value=False,
        callback=options.plain_text,
        shell_complete=known_profiles,
        metavar="NAME",
        help="Take what this profile states (`stado profiles`); other options win.",
    ),
)

_ORDER_AND_SIZE = (
    click.option(
        "--priority", type=int, default=0, metavar="N", help="Higher starts first.  [default: 0]"
    ),
    click.option("--cpu", type=float, metavar="CORES", help="Cores to reserve.  [default: 1]"),
    click.option("--memory-gb", type=float, metavar="GIB", help="GiB to reserve.  [default: 1]"),
    click.option(
        "--gpus",
        callback=options.plain_text,
        metavar="N|KIND[:N]",
        help="Whole cards, of this kind: 2, a100, a100:2; 0: none.  [default: none]",
    ),
    click.option(
        "--gpu-type",
        callback=options.plain_text,
        metavar="KIND",
        help="What the cards are called, or a part of it: a100, rtx4090.",
    ),
    click.option(
        "--vram-gb",
        type=float,
        metavar="GIB",
        help="GiB of each card; without --gpus: of one card, which other jobs may share.",
    ),
    click.option(
        "--disk-gb", type=float, metavar="GIB", help="GiB of disk to reserve.  [default: none]"
    ),
    click.option(
        "--exclusive/--no-exclusive",
        default=False,
        help="Run on a host on which nothing else runs meanwhile.",
    ),
    click.option(
        "--pinned-host",
        callback=options.plain_text,
        metavar="WORKER",
        help="Let no other worker run it (`stado hosts` has their names).",
    ),
    click.option(
        "--label",
        "labels",
        callback=options.plain_texts,
        multiple=True,
        metavar="KEY=VALUE",
        help="Run on a host with this label (repeatable).",
    ),
    click.option(
        "--machine-type",
        callback=options.plain_text,
        metavar="TYPE",
        help="Run on a machine of this type.",
    ),
    click.option(
        "--provider",
        callback=options.plain_text,
        metavar="NAME",
        help="Prefer machines of this provider (own ones are `local`).",
    ),
    click.option(
        "--pin-provider/--any-provider",
        default=False,
        help="Whether no other provider will do.  [default: any]",
    ),
    click.option(
        "--spot/--no-spot",
        "spot",
        callback=options.spot,
        default=None,
        help="Run only on machines that can be taken away at any moment, or never.  "
        "[default: either]",
    ),
    click.option(
        "--max-cost-per-hour",
        type=float,
        metavar="DOLLARS",
        help="Run on no host that costs more.",
    ),
    click.option(
        "--boot-disk-gb",
        type=float,
        metavar="GIB",
        help="Disk of a machine that may be rented for it; without it none is.",
    ),
    click.option(
        "--model",
        callback=options.plain_text,
        metavar="NAME",
        help="What it trains or runs: how long that takes is learnt by this name.",
    ),
    click.option(
        "--runtime-seconds-estimate",
        type=int,
        metavar="SECONDS",
        help="How long it will run.  [default: what its model took on such hosts]",
    ),
    click.option(
        "--group",
        callback=options.plain_text,
        metavar="NAME",
        help="One of those jobs of which the deployment lets only so many run at a time.",
    ),
    click.option(
        "--not-before",
        callback=options.instant,
        metavar="INSTANT",
        help="Do not start it before this instant (RFC 3339).",
    ),
    click.option(
        "--yieldable/--no-yieldable",
        default=False,
        help="Let it be put back into the queue for a more urgent job, --max-yields times.",
    ),
    click.option(
        "--max-yields", type=int, metavar="N", help="How often at most.  [default: never]"
    ),
    click.option(
        "--deadline-at",
        callback=options.instant,
        metavar="INSTANT",
        help="End the job at this instant (RFC 3339), queued or running.",
    ),
    click.option(
        "--timeout",
        "timeout_seconds",
        callback=options.duration,
        metavar="DURATION",
        help="End the job so long after it was picked up first: 90, 30m, 2h.  [default: no limit]",
    ),
    click.option(
        "--idle-timeout",
        "idle_timeout_seconds",
        callback=options.duration,
        metavar="DURATION",
        help="End a command that prints, saves and reports nothing for so long.  [default: never]",
    ),
    click.option(
        "--body-retries",
        type=int,
        default=0,
        metavar="N",
        help="Run a command that fails again, on the same host, N times at most.  [default: 0]",
    ),
    click.option(
        "--retries",
        type=int,
        metavar="N",
        help="Queue the job again N times at most after it failed.  [default: the deployment's, 0]",
    ),
    click.option(
        "--retry-on",
        callback=options.reasons,
        multiple=True,
        metavar="REASON",
        help="After this failure alone, such as job_failed or body_hung (repeatable).",
    ),
    click.option(
        "--retry-delay",
        "retry_delay_seconds",
        callback=options.duration,
        metavar="DURATION",
        help="Wait so long before the first, twice as long before the next.  [default: 1m]",
    ),
    click.option(
        "--final/--no-final",
        default=False,
        help="Let its end be one for ever: nobody can retry it.",
    ),
    click.option(
        "--notify",
        callback=options.notify,
        multiple=True,
        metavar="CHANNEL[:STATE,…]",
        help="Tell this channel of the coordinator when the job comes to that (repeatable).  "
        "[default: its end]",
    ),
    click.option(
        "--max-lease-losses",
        callback=options.losses,
        metavar="N|unlimited",
        help="How often to queue the job again after its host was lost.  [default: 3]",
    ),
    click.option(
        "--terminates-agent/--no-terminates-agent",
        default=False,
        help="Its command ends the agent that runs it: that this agent is gone is its success.",
    ),
)

_EXECUTION = (
    click.option(
        "--verify",
        callback=options.plain_text,
        metavar="COMMAND",
        help="Run after success; unless it exits with 0 the job has failed.",
    ),
    click.option(
        "--host-dir",
        callback=options.plain_text,
        metavar="DIR",
        help="Folder on the host to run in.",
    ),
    click.option(
        "--pre-command",
        callback=options.plain_text,
        metavar="COMMAND",
        help="Run before the command; unless it exits with 0 the job has failed.",
    ),
    click.option(
        "--strict-shell/--no-strict-shell",
        default=False,
        help="Run by bash; the first line that fails ends the job, and is named.",
    ),
    click.option(
        "--image",
        callback=options.plain_text,
        metavar="IMAGE",
        help="Run in a container of this image, on a host with Docker.",
    ),
    click.option(
        "--env-file",
        callback=options.variables_file,
        is_eager=True,
        expose_value=False,
        metavar="FILE",
        help="Set variables from lines NAME=VALUE ('-': standard input); --env wins.",
    ),
    click.option(
        "--env",
        "environment",
        callback=options.variables,
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a variable for the command (repeatable).",
    ),
    click.option(
        "--secret-env",
        "secrets",
        callback=options.secrets,
        multiple=True,
        metavar="NAME=ITEM#FIELD",
        help="Set a variable to a secret that the host looks up (repeatable).",
    ),
)

_CODE = (
    click.option(
        "--workdir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Take the files of DIR along, as they are now; the command runs among them.",
    ),
    click.option(
        "--workdir-limit-mb",
        type=click.FloatRange(min=0, min_open=True),
        metavar="MIB",
        help="MiB that they may have.  [default: 64]",
    ),
    click.option(
        "--require-clean/--no-require-clean",
        default=False,
        help="Refuse a DIR that differs from the commit that is checked out there.",
    ),
    click.option(
        "--repo",
        callback=options.plain_text,
        metavar="URL",
        help="Let the host check out a commit of this git repository, and run there.",
    ),
    click.option(
        "--repo-ref", callback=options.plain_text, metavar="COMMIT", help="The commit, in full."
    ),
    click.option(
        "--repo-workdir",
        callback=options.plain_text,
        metavar="PATH",
        help="Folder of the repository to run in.  [default: its top]",
    ),
)

_OUTPUTS = (
    click.option(
        "--expect-output",
        "expected_outputs",
        callback=options.plain_texts,
        multiple=True,
        metavar="PATH|PATTERN",
        help="A file that the command must leave in its output folder, such as model.npz or "
        "'plots/*.png' (repeatable); without it the job has failed.",
    ),
    click.option(
        "--output-uri",
        callback=options.plain_text,
        metavar="ADDRESS",
        help="Copy the output there too: stado://path in this store, s3://bucket/prefix, "
        "gs://bucket/prefix, or a folder of the host. A copy that fails is a warning.",
    ),
)

_TAKEN_ALONG = (
    click.option(
        "--input-artifact",
        "input_artifacts",
        callback=options.inputs,
        multiple=True,
        metavar="NAME=REF",
        help="Put a job's output (JOB, JOB/path), an artifact (artifact:NAME@VERSION) or an object "
        "(s3://…#sha256=…) into $STADO_INPUT_DIR/NAME (repeatable).",
    ),
)

_CHECKPOINTS = (
    click.option(
        "--tag",
        "tags",
        callback=options.tags,
        multiple=True,
        metavar="TAG",
        help="A word to find the job by (repeatable): small letters, digits and . _ -",
    ),
    click.option(
        "--type",
        callback=options.job_type,
        default="job",
        shell_complete=options.known_job_types,
        metavar="TYPE",
        help="job, train, play, preview, eval or export. A train job makes a policy, and has to "
        "save a checkpoint.  [default: job]",
    ),
    click.option(
        "--require-checkpoint/--no-require-checkpoint",
        default=False,
        help="Without a saved checkpoint a success is a failure.",
    ),
    click.option(
        "--from",
        "--start-from",
        "start_from_ref",
        callback=options.plain_text,
        metavar="POLICY:best|latest",
        help="Start from this checkpoint: it lies in $STADO_CHECKPOINT_DIR.",
    ),
)

_STEPS = (
    click.option(
        "--after",
        "after_refs",
        callback=options.names,
        multiple=True,
        metavar="JOB[:ok|any|fail]",
        help="Wait until this job has ended so (repeatable).  [default: ok]",
    ),
    click.option(
        "--then",
        callback=options.steps,
        multiple=True,
        metavar="NAME=COMMAND",
        help="Run this once the job has completed; repeated: one after another.",
    ),
    click.option(
        "--then-parallel/--no-then-parallel",
        default=False,
        help="Run them all at once, after the job itself.",
    ),
    click.option(
        "--then-checkpoint",
        "then_from",
        callback=options.kind,
        metavar="best|latest",
        help="Which checkpoint of the job they start from.  [default: the best there is]",
    ),
    click.option(
        "--then-cpu", type=float, metavar="CORES", help="Cores for each of them.  [default: 1]"
    ),
    click.option(
        "--then-memory-gb", type=float, metavar="GIB", help="GiB for each of them.  [default: 1]"
    ),
    click.option(
        "--then-gpus",
        type=int,
        metavar="N",
        help="Whole cards for each of them, of the job's kind.  [default: none]",
    ),
)

_ALL = (
    *_ORDER_AND_SIZE,
    *_EXECUTION,
    *_CODE,
    *_TAKEN_ALONG,
    *_OUTPUTS,
    *_CHECKPOINTS,
    *_STEPS,
)


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command all of them, in the order of its help."""
    return _given(function, (*_PROFILE, *_ALL))


def job_options_but_profile(function: Callable[..., Any]) -> Callable[..., Any]:
    """For what has another set of options below those that are typed."""
    return _given(function, _ALL)


def _given(
    function: Callable[..., Any], all_options: Sequence[Callable[..., Any]]
) -> Callable[..., Any]:
    for option in reversed(all_options):
        function = option(function)
    return function


def request_of(commands: Sequence[str], asked: Mapping[str, Any], *, batch: bool) -> Request:
    """What the options ask for. Raises `Refused`, naming the value and the remedy."""
    from stado.core.spec import make_request

    return make_request(list(commands), shared_of(asked), batch=batch)


def shared_of(asked: Mapping[str, Any]) -> Spec:
    """What all jobs have in common, unchecked."""
    from stado.core.envelope import with_cards
    from stado.core.spec import Spec

    unpinned = _unpinned_names()
    return Spec(
        command="", **with_cards({name: asked[name] for name in asked if name not in unpinned})
    )


def unpinned_of(asked: Mapping[str, Any]) -> Unpinned:
    """What of the options has to be pinned once a store is open."""
    from stado.pinning import Unpinned

    return Unpinned(**{name: asked[name] for name in _unpinned_names()})


def submitter_named(user: str) -> Submitter:
    """Who names jobs as the command line takes them, and is told on stderr."""
    from stado.cli import render
    from stado.cli.selectors import select_job
    from stado.pinning import Submitter

    def job_named(repo: Repository, text: str) -> str:
        return select_job(repo, text, user=user, command="stado job show")

    return Submitter(job_named=job_named, tell=render.tell)


def _unpinned_names() -> set[str]:
    from dataclasses import fields

    from stado.pinning import Unpinned

    return {field.name for field in fields(Unpinned)}
