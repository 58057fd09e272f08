"""`stado retention`: what ended jobs left goes by age, and by size."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from stado.cli import exits
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from stado.core.output_sizes import Room
    from stado.core.retention import Keeps, Rules
    from stado.core.states import Leftover
    from stado.jobs.repository import Repository
    from stado.jobs.retention import Outcome

_MOST_DEFAULT = 10_000
_GOES_ON = "interrupted: what is gone is gone; the same command goes on"
_CUT = "it stopped before all was looked at (--most, or many jobs that left nothing)"
_SHOWN_MAX = 20
"""Of what goes, without --verbose."""

_most_option = click.option(
    "--most",
    type=click.IntRange(min=1),
    default=_MOST_DEFAULT,
    metavar="N",
    help=f"Stop after N jobs of which something goes.  [{_MOST_DEFAULT}]",
)


@dataclass
class _Sum:
    """What goes of one kind."""

    jobs: int = 0
    objects: int = 0
    size: int = 0
    oldest: datetime | None = None

    def add(self, outcome: Outcome) -> None:
        self.jobs += 1
        self.objects += outcome.objects
        self.size += outcome.size
        if self.oldest is None or outcome.rested_at < self.oldest:
            self.oldest = outcome.rested_at

    def fields(self) -> dict[str, Any]:
        from stado.cli.render import instant_text

        oldest = instant_text(self.oldest)
        return {"jobs": self.jobs, "objects": self.objects, "bytes": self.size, "oldest": oldest}


@dataclass
class _Account:
    """What a walk came to."""

    goes: dict[Leftover, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    kept: Counter[tuple[Leftover, Keeps]] = field(default_factory=Counter)
    room: Room | None = None
    """What outputs take by now, or would once all of it went; None: no size is set for them."""
    all: list[Outcome] = field(default_factory=list)
    """But what is not there, and is noted as gone all the same; what is kept where that is named:
    there can be millions."""
    names_kept: bool = False
    looked_at: int = 0
    is_cut: bool = False
    """Whether there may be more: it ended after so many."""

    def add(self, outcome: Outcome) -> None:
        self.looked_at += 1
        if outcome.keeps is not None:
            self.kept[outcome.kind, outcome.keeps] += 1
            if self.names_kept:
                self.all.append(outcome)
            return
        if outcome.goes:
            self.goes[outcome.kind].add(outcome)
            self.all.append(outcome)

    @property
    def going(self) -> list[Outcome]:
        return [one for one in self.all if one.keeps is None]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.goes.values())

    @property
    def objects(self) -> int:
        return sum(one.objects for one in self.goes.values())

    def fields(self) -> dict[str, Any]:
        return {
            "goes": {kind.value: one.fields() for kind, one in self.goes.items()},
            "kept": [
                {"kind": kind.value, "reason": keeps.value, "jobs": count}
                for (kind, keeps), count in self.kept.items()
            ],
            "more": self.is_cut,
            "outputs": None if self.room is None else _room_fields(self.room),
        }


@click.command()
@_most_option
@json_option
@target_options
def show(*, most: int, as_json: bool, target: Target) -> None:
    """Show which rules are in force, and what they would free now. Nothing is deleted.

    Without a rule (`stado settings set retention.logs 90d`) everything is kept for ever.
    """
    from stado.cli import render

    with opened_repository(target) as repo:
        rules = _rules(repo)
        account = _Account()
        _walked(account, repo, rules, apply=False, most=most)
    if as_json:
        render.print_json({"rules": _rule_fields(rules), **account.fields()})
        return
    for line in _rule_lines(rules):
        render.print_line(line)
    if rules.is_any:
        _print_sums(account)
        _tell_kept(account)
        _tell_room(account)


@click.command()
@click.option("--apply", is_flag=True, help="Delete it. Without this nothing is deleted.")
@click.option("--yes", is_flag=True, help="With --apply: ask nothing.")
@click.option("--verbose", is_flag=True, help="Name each job, also what is kept.")
@_most_option
@json_option
@target_options
def run(*, apply: bool, yes: bool, verbose: bool, most: int, as_json: bool, target: Target) -> int:
    """List what goes by the rules of the deployment, for its age or because outputs take too much,
    and what keeps the rest; with --apply, delete it.

    \b
      stado retention run
      stado retention run --apply

    What an artifact or a policy names stays, and so does what a job needs that has not completed:
    outputs that it takes along, checkpoints that a retry goes on from. What jobs used and cost is
    kept. Interrupted, the same command goes on; any number may run at once.
    """
    from stado.cli import render
    from stado.cli.failures import going_on

    with opened_repository(target) as repo:
        rules = _rules(repo)
        if not rules.is_any:
            if as_json:
                render.print_json({"applied": False, "rules": _rule_fields(rules), "goes": {}})
            render.tell("no retention rule is set: everything is kept")
            return exits.OK
        account = _Account(names_kept=verbose)
        if apply and not yes:
            _walked(account, repo, rules, apply=False, most=most)
            if account.going and not _may_go_on(account):
                return exits.FAILED
            apply = bool(account.going)
        if apply or not account.looked_at:
            account = _Account(names_kept=verbose)
            tell = _each_as_it_goes(verbose) if apply and not as_json else _progress(apply)
            with going_on(_GOES_ON), _told_so_far(account, apply=apply):
                _walked(account, repo, rules, apply=apply, most=most, tell=tell)
    if as_json:
        told = [_fields(one) for one in account.all] if verbose else None
        fields = {"applied": apply, "rules": _rule_fields(rules), **account.fields()}
        render.print_json(fields if told is None else {**fields, "each": told})
        return exits.OK
    if not apply:
        _print_each(account, verbose=verbose)
    _tell_kept(account)
    _tell_room(account)
    render.tell(_summary(account, apply=apply))
    return exits.OK


def _may_go_on(account: _Account) -> bool:
    """Asked with what it would come to now."""
    from stado.cli import render
    from stado.cli.stopping import confirmed

    parts = [_kind_text(kind, one.jobs) for kind, one in account.goes.items()]
    size = render.size_text(account.size)
    return confirmed("delete", f"{', '.join(parts)} ({size})", done="deleted")


@contextmanager
def _told_so_far(account: _Account, *, apply: bool) -> Iterator[None]:
    """What went, where the store fails on the way, or the rules were changed."""
    from stado.cli import render
    from stado.errors import Refused, StoreError

    try:
        yield
    except (StoreError, Refused):
        if apply:
            what = f"deleted {_what(account)}" if account.going else "deleted nothing"
            render.tell(f"{what} so far, or some more; the same command goes on")
        raise


def _rules(repo: Repository) -> Rules:
    from stado.core.retention import rules_of
    from stado.jobs.settings import read_settings

    return rules_of(read_settings(repo).retention)


def _walked(
    account: _Account,
    repo: Repository,
    rules: Rules,
    *,
    apply: bool,
    most: int,
    tell: Callable[[_Account], None] = lambda _: None,
) -> None:
    from stado.jobs.retention import Retention, check_unchanged

    if apply:
        check_unchanged(repo, rules)
    retention = Retention(repo, rules, by=user_name())
    for some in retention.outcomes(apply=apply, jobs_max=most):
        for outcome in some:
            account.add(outcome)
        tell(account)
        if apply:
            check_unchanged(repo, rules)
    account.room, account.is_cut = retention.room, retention.is_cut


def _progress(apply: bool) -> Callable[[_Account], None]:
    """A line now and then, on a terminal."""
    from stado.cli import render

    told = 0

    def tell(account: _Account) -> None:
        nonlocal told
        if account.looked_at >= told + 1000:
            told = account.looked_at
            done = "deleted so far" if apply else "would go so far"
            size = render.size_text(account.size)
            render.tell(f"{told:,} looked at; {done}: {account.objects:,} objects, {size}")

    return tell if render.stderr_is_terminal() else lambda _: None


def _each_as_it_goes(verbose: bool) -> Callable[[_Account], None]:
    """A line for each, and now and then how far it is."""
    from stado.cli import render

    printed = 0
    progress = _progress(apply=True)

    def tell(account: _Account) -> None:
        nonlocal printed
        shown = account.all if verbose else account.going[:_SHOWN_MAX]
        for one in shown[printed:]:
            render.print_line(_line(one))
        is_first_cut = printed < _SHOWN_MAX < len(account.going)
        printed = len(shown)
        if not verbose and is_first_cut:
            render.tell("and more, which --verbose names")
        progress(account)

    return tell


def _line(one: Outcome) -> str:
    """`zzz  log  2 objects, 4.0 kB: retention.logs 90d`"""
    from stado.cli import render

    if one.keeps is not None:
        return f"{one.job_id}  {one.kind.value}  kept: {one.keeps.text}"
    what = f"{render.plural(one.objects, 'object')}, {render.size_text(one.size)}"
    return f"{one.job_id}  {one.kind.value}  {what}: {one.rule}"


# --- telling it -----------------------------------------------------------------------------


def _rule_lines(rules: Rules) -> list[str]:
    from stado.core.states import Leftover

    if not rules.is_any:
        return ["no retention rule is set: everything is kept for ever"]
    lines = [rules.text(kind) for kind in Leftover if kind in rules.ages]
    if rules.output_bytes is not None:
        lines.append(rules.size_text)
    return [*lines, f"retention.keep_newest {rules.keep_newest}"]


def _rule_fields(rules: Rules) -> dict[str, int]:
    from stado.core.retention import OUTPUT_BYTES, setting_of

    sizes = {} if rules.output_bytes is None else {OUTPUT_BYTES: rules.output_bytes}
    ages = {setting_of(kind): seconds for kind, seconds in rules.ages.items()}
    return {**ages, **sizes, "retention.keep_newest": rules.keep_newest}


def _print_sums(account: _Account) -> None:
    from stado.cli import render
    from stado.cli.stories import moment_text
    from stado.cli.tables import Column

    if not account.goes:
        render.tell(_nothing_text(account))
        return
    columns = [
        Column("WHAT"),
        Column("JOBS", right=True),
        Column("OBJECTS", right=True),
        Column("SIZE", right=True),
        Column("OLDEST"),
    ]
    rows = [
        [
            kind.value,
            f"{one.jobs:,}",
            f"{one.objects:,}",
            render.size_text(one.size),
            moment_text(one.oldest) if one.oldest is not None else "-",
        ]
        for kind, one in account.goes.items()
    ]
    render.print_table(columns, rows)
    if account.is_cut:
        render.tell(f"and more: {_CUT}")


def _print_each(account: _Account, *, verbose: bool) -> None:
    from stado.cli import render
    from stado.cli.stories import moment_text
    from stado.cli.tables import Column

    shown = account.all if verbose else account.going[:_SHOWN_MAX]
    if not shown:
        return
    columns = [
        Column("JOB"),
        Column("WHAT"),
        Column("ENDED"),
        Column("OBJECTS", right=True),
        Column("SIZE", right=True),
        Column("WHY"),
    ]
    rows = [
        [
            one.job_id,
            one.kind.value,
            moment_text(one.rested_at),
            f"{one.objects:,}" if one.keeps is None else "-",
            render.size_text(one.size) if one.keeps is None else "-",
            one.rule if one.keeps is None else f"kept: {one.keeps.text}",
        ]
        for one in shown
    ]
    render.print_table(columns, rows)
    if not verbose and len(account.going) > _SHOWN_MAX:
        more = len(account.going) - _SHOWN_MAX
        render.tell(f"and {more:,} more, which --verbose names")


def _tell_kept(account: _Account) -> None:
    from stado.cli import render

    for (kind, keeps), count in sorted(account.kept.items()):
        render.tell(f"kept, though a rule lets it go: {_kind_text(kind, count)}: {keeps.text}")


def _tell_room(account: _Account) -> None:
    from stado.cli import render
    from stado.cli.views import jobs_text
    from stado.core.size_words import stated_size

    room = account.room
    if room is None:
        return
    rest, limit = render.size_text(room.held), stated_size(room.limit)
    render.tell(f"outputs of {jobs_text(room.jobs)} stay: {rest}; {limit} may stay")
    if room.unknown:
        render.tell(f"how much {jobs_text(room.unknown)} of them left is not known: it may be more")
    if not room.beyond:
        return
    beyond = render.size_text(room.beyond)
    if not room.is_whole:
        render.tell(f"{beyond} too much: not all jobs were looked at (--most)")
        return
    render.tell(f"{beyond} too much: all that may go went, or would; the rest is kept:")
    for keeps, size in sorted(room.kept.items()):
        render.tell(f"  {render.size_text(size)}: {keeps.text}")


def _room_fields(room: Room) -> dict[str, Any]:
    return {
        "limit": room.limit,
        "bytes": room.held,
        "jobs": room.jobs,
        "unknown_jobs": room.unknown,
        "beyond": room.beyond,
        "kept": {keeps.value: size for keeps, size in room.kept.items()},
        "whole": room.is_whole,
    }


def _kind_text(kind: Leftover, jobs: int) -> str:
    """`the logs of 3 jobs`"""
    from stado.cli.views import jobs_text
    from stado.core.states import Leftover

    if kind is Leftover.JOB:
        return jobs_text(jobs)
    name = {Leftover.LOG: "log"}.get(kind, kind.value)
    if kind is Leftover.LOG and jobs != 1:
        name = "logs"
    return f"the {name} of {jobs_text(jobs)}"


def _summary(account: _Account, *, apply: bool) -> str:
    if not account.going:
        return _nothing_text(account)
    what = _what(account)
    told = f"deleted {what}" if apply else f"would delete {what}; nothing was deleted: add --apply"
    if account.is_cut:
        told += f"; {_CUT}"
    return told


def _what(account: _Account) -> str:
    """`the logs of 3 jobs: 6 objects, 4.0 kB`"""
    from stado.cli import render

    parts = [_kind_text(kind, one.jobs) for kind, one in account.goes.items()]
    objects = render.plural(account.objects, "object")
    return f"{', '.join(parts)}: {objects}, {render.size_text(account.size)}"


def _nothing_text(account: _Account) -> str:
    if account.is_cut:
        return f"nothing to go was found: {_CUT}"
    return "nothing is to go, or all that was has gone"


def _fields(outcome: Outcome) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "job_id": outcome.job_id,
        "kind": outcome.kind.value,
        "rule": outcome.rule,
        "rested_at": instant_text(outcome.rested_at),
        "goes": outcome.keeps is None,
        "kept_by": None if outcome.keeps is None else outcome.keeps.value,
        "objects": outcome.objects,
        "bytes": outcome.size,
    }
