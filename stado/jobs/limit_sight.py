"""Limits that a deployment shares, as people see them: whether a job waits for one, for a budget
or for a window, and who has the places under a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from stado.core import keys
from stado.core.budget_words import Budget
from stado.core.budgets import (
    Spending,
    Standing,
    budgets_set,
    not_known,
    standings,
    standings_of,
)
from stado.core.envelope import group_code
from stado.core.ids import base_of
from stado.core.order import Needs
from stado.core.quotas import Scope, ScopeKind, asks_for_too_much, free_slots, scope_name, scopes_of
from stado.core.records import Record, SlotToken
from stado.core.settings import WORKERS_LOOK_SECONDS, DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import BudgetState
from stado.core.windows import (
    Restriction,
    first_closed,
    opening,
    restrictions,
    restrictions_of,
)
from stado.errors import Unreadable
from stado.jobs.budget_sight import budget_note, budget_wait, room_text, unknown_text
from stado.jobs.budgets import is_old, read_budgets
from stado.jobs.fitting import Gate, GateName, Wait, listed
from stado.jobs.quotas import find_token, slots_in
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.jobs.settings import read_settings
from stado.jobs.window_sight import window_wait, windows_text
from stado.storage.port import LIST_LIMIT_MAX, Entry, walk

_MINUTE = timedelta(minutes=1)
_BEHIND_ALL = f"{keys.QUOTA}\U0010ffff"

WAITING_QUOTA = "waiting_quota"
ORG_LIMIT = "org_running_limit_reached"

_HOLDERS_NAMED = 4
"""That are read to be named; a sentence names three."""

_PLACES_READ = 16
"""Of cards, of which a job has several places."""

_SCOPES_MAX = 50
"""Limits of which one look lists the places one by one; of more it lists the whole folder."""

_PAGES_MAX = 10
"""Of that folder: what is behind them is not known, and said to be so."""


@dataclass(frozen=True, slots=True)
class Use:
    """How many of a limit's places are taken, and how many of the others may be."""

    scope: Scope
    taken: int
    free: int
    entries: tuple[Entry, ...] = ()
    known: bool = True
    """False: there are more places than a look lists."""

    @property
    def full(self) -> bool:
        """For a job that takes so many."""
        return self.free < self.scope.places


class LimitSight:
    """One look: the settings are read once, what is spent once where a budget is set, and the
    places of each limit are listed once. When windows open is worked out once a minute for those
    who fall under the same ones."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._settings: DeploymentSettings | None = None
        self._spent: Spending | None = None
        self._standings: list[Standing] | None = None
        self._uses: dict[Scope, Use] = {}
        self._places: _Places | None = None
        self._openings: dict[tuple[tuple[Restriction, ...], datetime], datetime | None] = {}

    @property
    def settings(self) -> DeploymentSettings:
        """Those of a new deployment where they cannot be read: agents tell of that."""
        if self._settings is None:
            try:
                self._settings = read_settings(self._repo)
            except Unreadable as error:
                self._repo.tell_unreadable(error)
                self._settings = DeploymentSettings()
        return self._settings

    def wait_of(self, spec: Spec, *, user: str | None, job_id: str | None) -> Wait | None:
        """What keeps such a job of this user in the queue; None: no limit, budget or window does.
        `user`, `job_id` None: not known."""
        for use in self._all_uses(spec, user, job_id):
            if use.full:
                return self._as_known(_wait(use, []))
        wait = self._budget_wait(spec, user) or self._window_wait(spec, user)
        return None if wait is None else self._as_known(wait)

    def _as_known(self, wait: Wait) -> Wait:
        """Workers may not know yet what was changed lately, and start the job all the same."""
        changed_at = self.settings.changed_at
        if changed_at is None:
            return wait
        age_seconds = (self._repo.now() - changed_at).total_seconds()
        return wait if age_seconds > WORKERS_LOOK_SECONDS else replace(wait, certain=False)

    def budget_notes(self, spec: Spec, *, user: str | None) -> list[str]:
        """Of budgets that such a job falls under, and that will be spent soon, or of which nothing
        is known yet."""
        percent = self.settings.budgets.warns_at_percent
        notes = [
            budget_note(one)
            for one in self._standings_of(spec, user)
            if one.state(percent) is BudgetState.WARNED
        ]
        unknown = self._not_known(spec, user)
        return [*notes, unknown_text(unknown)] if unknown else notes

    def too_many_cards(self, needs: Needs) -> Wait | None:
        """Of a job that asks for more cards than a limit has that is known without its record."""
        return _TOO_MANY if asks_for_too_much(needs, self.settings) else None

    def held_up(self, now: datetime) -> Callable[[Needs], bool]:
        """Whether the name of an entry shows that its job may not start at this moment: by windows
        or budgets of all jobs or of its group, or because it asks for more cards than it may
        have."""
        spent = [one for one in self._all_standings() if one.is_spent and now < one.ends_at]
        shut = [one for one in restrictions(self.settings) if not one.is_open(now)]
        closed = [(one.kind, one.subject) for one in shut]
        closed += [(one.kind, one.subject) for one in spent]
        all_closed = any(kind is ScopeKind.ALL for kind, _ in closed)
        groups = {group_code(subject) for kind, subject in closed if kind is ScopeKind.GROUP}

        def is_held_up(needs: Needs) -> bool:
            of_group = needs.group is not None and needs.group in groups
            return all_closed or of_group or asks_for_too_much(needs, self.settings)

        return is_held_up

    def opens_at(self, spec: Spec, user: str | None, at: datetime) -> datetime | None:
        """When such a job of this user may start, from this moment on, by its budgets and windows;
        None where nobody can say."""
        spent = [one.ends_at for one in self._standings_of(spec, user) if one.is_spent]
        at = max([at, *spent])
        restricted = tuple(restrictions_of(spec, user=user, settings=self.settings))
        minute = at.replace(second=0, microsecond=0)
        if (restricted, minute) not in self._openings:
            self._openings[restricted, minute] = opening(restricted, at)
        found = self._openings[restricted, minute]
        return at if found is not None and found < minute + _MINUTE else found

    def _window_wait(self, spec: Spec, user: str | None) -> Wait | None:
        now = self._repo.now()
        closed = first_closed(spec, user=user, settings=self.settings, at=now)
        return None if closed is None else window_wait(closed, self.opens_at(spec, user, now), spec)

    def _all_standings(self) -> list[Standing]:
        """Of the budgets that are set. Nothing where what is spent cannot be read."""
        if self._standings is None:
            self._standings = []
            if budgets_set(self.settings):
                self._spent = read_budgets(self._repo)
                self._standings = list(standings(self.settings, self._spent, self._repo.now()))
        return self._standings

    def _standings_of(self, spec: Spec, user: str | None) -> list[Standing]:
        return standings_of(spec, user=user, found=self._all_standings())

    def _budget_wait(self, spec: Spec, user: str | None) -> Wait | None:
        """That which begins anew last, of those that are spent."""
        spent = [one for one in self._standings_of(spec, user) if one.is_spent]
        return budget_wait(max(spent, key=lambda one: one.ends_at), spec) if spent else None

    def _budget_gates(self, record: Record) -> Iterator[Gate]:
        """Where a budget is set that it falls under."""
        closed = self._budget_wait(record.spec, record.submitter)
        found = self._standings_of(record.spec, record.submitter)
        now = self._repo.now()
        if closed is not None:
            yield Gate(GateName.BUDGET, closed.text, closed)
        elif budgets_set(self.settings) and (self._spent is None or is_old(self._spent, now)):
            text = "what is spent of budgets is not known: no coordinator has worked it out lately"
            yield Gate(GateName.BUDGET, text)
        else:
            unknown = self._not_known(record.spec, record.submitter)
            texts = [f"its budgets are not spent: {room_text(found)}"] if found else []
            if found and unknown:
                texts = [f"some of its budgets are not spent: {room_text(found)}"]
            texts += [unknown_text(unknown)] if unknown else []
            if texts:
                yield Gate(GateName.BUDGET, "; ".join(texts))

    def _not_known(self, spec: Spec, user: str | None) -> list[Budget]:
        return not_known(
            spec, user=user, settings=self.settings, known=self._spent, now=self._repo.now()
        )

    def gates(self, record: Record) -> Iterator[Gate]:
        """Of a queued job that falls under a limit or a budget, or starts in windows alone. Who has
        the places of a full limit is read, up to four (of cards up to 16)."""
        uses = list(self._all_uses(record.spec, record.submitter, record.id))
        full = next((use for use in uses if use.full), None)
        if full is not None:
            wait = _wait(full, self._holders(full))
            yield Gate(GateName.QUOTA, wait.text, wait)
        elif uses:
            taken = listed([f"{use.taken} of {use.scope.limit} {_of(use.scope)}" for use in uses])
            yield Gate(GateName.QUOTA, f"running under its limits: {taken}")
        yield from self._budget_gates(record)
        restricted = restrictions_of(record.spec, user=record.submitter, settings=self.settings)
        closed = self._window_wait(record.spec, record.submitter)
        if closed is not None:
            yield Gate(GateName.WINDOW, closed.text, closed)
        elif restricted:
            yield Gate(GateName.WINDOW, f"a window is open: {windows_text(restricted)}")

    def _all_uses(self, spec: Spec, user: str | None, job_id: str | None) -> Iterator[Use]:
        base_id = None if job_id is None else base_of(job_id)
        for scope in scopes_of(spec, base_id=base_id, user=user, settings=self.settings):
            one = replace(scope, places=1)
            if one not in self._uses:
                self._uses[one] = self._look(one)
            yield replace(self._uses[one], scope=scope)

    def _look(self, scope: Scope) -> Use:
        if len(self._uses) < _SCOPES_MAX:
            return _use(scope, slots_in(self._repo, keys.slots_of(scope.name)))
        if self._places is None:
            self._places = _all_places(self._repo)
        if keys.slots_of(scope.name) >= self._places.until:
            return Use(scope, 0, 0, known=False)
        return _use(scope, self._places.found.get(keys.component(scope.name), {}))

    def _holders(self, use: Use) -> list[str]:
        most = _PLACES_READ if use.scope.kind.of_cards else _HOLDERS_NAMED
        tokens = read_tokens(self._repo, use.entries[:most])
        named = [f"job {job_id}" for job_id in dict.fromkeys(token.job_id for token in tokens)]
        return named + ["others"] * (use.taken > len(tokens))


def _use(scope: Scope, found: dict[int, Entry]) -> Use:
    """`found`: its places by number; an empty one is free."""
    held = {number: entry for number, entry in found.items() if entry.size}
    free = len(free_slots(held.keys(), scope.limit))
    return Use(scope, len(held), free, tuple(held[number] for number in sorted(held)))


@dataclass(frozen=True, slots=True)
class _Places:
    """Of all limits, by the component of the scope's name, then by number."""

    found: dict[str, dict[int, Entry]]
    until: str
    """Those that begin so, or later, were not listed to their end."""


def _all_places(repo: Repository) -> _Places:
    """Ten pages at most."""
    found: dict[str, dict[int, Entry]] = {}
    for number, entry in enumerate(walk(repo.store, keys.QUOTA, page_size=LIST_LIMIT_MAX)):
        parsed = keys.parse_slot(entry.key)
        if number >= _PAGES_MAX * LIST_LIMIT_MAX:
            cut = entry.key if parsed is None else f"{keys.QUOTA}{parsed[0]}~"
            return _Places(found, cut)
        if parsed is not None:
            found.setdefault(parsed[0], {})[parsed[1]] = entry
    return _Places(found, _BEHIND_ALL)


def read_tokens(repo: Repository, entries: tuple[Entry, ...]) -> list[SlotToken]:
    """Of places that are taken; those that are free by now, or cannot be read, are left out."""

    def read(entry: Entry) -> SlotToken | None:
        try:
            found = find_token(repo, entry.key)
        except Unreadable as error:
            repo.tell_unreadable(error)
            return None
        return None if found is None else found.value

    found = repo.tasks.map(read, list(entries), limit=PARALLEL_REQUESTS)
    return [token for token in found if token is not None]


def _wait(use: Use, holders: list[str]) -> Wait:
    scope = use.scope
    if not use.known:
        text = f"how much of the limit of jobs {_of(scope)} is taken was not looked at"
        return Wait(
            WAITING_QUOTA,
            f"{text}: there are more limits in use than one look lists",
            until=f"when its limits let it: {text}",
        )
    if scope.kind.of_cards:
        return _cards_wait(use, holders)
    if scope.limit == 0:
        text = f"the deployment lets none {_of(scope)} start"
    else:
        text = f"as many jobs {_of(scope)} run as may at a time ({scope.limit:,})"
    by = f": {listed(holders)}" if holders else ""
    return Wait(
        ORG_LIMIT if scope.kind is ScopeKind.ALL else WAITING_QUOTA,
        f"{text}{by}",
        f"`stado settings set {_SETTING[scope.kind]}` allows more" if scope.limit == 0 else None,
        f"when one of them has ended: {text}" if scope.limit else f"when it may: {text}",
    )


def _cards_wait(use: Use, holders: list[str]) -> Wait:
    scope = use.scope
    asked, allows = _cards(scope.places), f"`stado settings set {_SETTING[scope.kind]}` allows more"
    if scope.limit == 0:
        text = f"the deployment lets jobs {_of(scope)} hold no card"
        return Wait(WAITING_QUOTA, text, allows, f"when it may: {text}")
    most = f"jobs {_of(scope)} may hold {_cards(scope.limit)} at a time"
    if scope.never_fits:
        text = f"it asks for {asked}, and {most}"
        return Wait(WAITING_QUOTA, text, f"submit it with fewer cards; {allows}")
    by = f": {listed(holders)}" if holders else ""
    text = f"it asks for {asked}, and {most}, of which {use.taken:,} are held"
    return Wait(WAITING_QUOTA, f"{text}{by}", None, f"when enough of them are free: {text}")


_TOO_MANY = Wait(
    WAITING_QUOTA,
    "it asks for more cards than such jobs may hold",
    "submit it with fewer, or allow more: `stado settings list` has quotas.running_gpus, "
    "quotas.running_gpus_per_user and groups.gpus",
)


def _cards(count: int) -> str:
    return f"{count:,} card{'' if count == 1 else 's'}"


_SETTING = {
    ScopeKind.GPUS: "quotas.running_gpus",
    ScopeKind.USER_GPUS: "quotas.running_gpus_per_user",
    ScopeKind.GROUP_GPUS: "groups.gpus",
    ScopeKind.ALL: "quotas.running_jobs",
    ScopeKind.USER: "quotas.running_jobs_per_user",
    ScopeKind.GROUP: "groups.limits",
}


def _of(scope: Scope) -> str:
    if not scope.subject:
        return "of the deployment"
    return f"of {_CALLED.get(scope.kind, '')}{scope.subject}"


_CALLED = {
    ScopeKind.GROUP: "group ",
    ScopeKind.GROUP_GPUS: "group ",
    ScopeKind.RUN: "array ",
}


# --- who has what -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """One of the deployment's, and who has its places. `limit` None: it has none any more, and
    these are of before."""

    name: str
    limit: int | None
    held: list[SlotToken] = field(default_factory=list)
    more: int = 0
    """Places that are taken and were not read."""

    @property
    def taken(self) -> int:
        return len(self.held) + self.more

    @property
    def of_cards(self) -> bool:
        """Whether its places are cards, of which a job may have several."""
        return self.name.partition(".")[0] in _OF_CARDS


_READ_MAX = 1000
_OF_CARDS = {kind.value for kind in ScopeKind if kind.of_cards}


def look_at_limits(repo: Repository) -> list[Limit]:
    """All limits that are set, and those that still have places taken. A read, a listing a thousand
    places, and a read for each that is taken, up to a thousand."""
    settings = read_settings(repo)
    taken = _taken(repo)
    entries = [entry for of_one in taken.values() for entry in of_one]
    tokens: dict[str, list[SlotToken]] = {}
    for token in read_tokens(repo, tuple(entries[:_READ_MAX])):
        tokens.setdefault(keys.component(token.scope), []).append(token)
    names = {keys.component(name): name for name in _limits_set(settings)}
    names |= {part: of_one[0].scope for part, of_one in tokens.items()}
    names = {**{part: part for part in taken}, **names}
    return [
        Limit(
            name=name,
            limit=_limit_of(repo, settings, name, tokens.get(part, [])),
            held=tokens.get(part, []),
            more=max(0, len(taken.get(part, [])) - len(tokens.get(part, []))),
        )
        for part, name in sorted(names.items(), key=lambda one: one[1])
    ]


def _taken(repo: Repository) -> dict[str, list[Entry]]:
    """By the component of the scope's name."""
    found: dict[str, list[Entry]] = {}
    for number, entry in enumerate(walk(repo.store, keys.QUOTA)):
        parsed = keys.parse_slot(entry.key)
        if parsed is not None and entry.size:
            found.setdefault(parsed[0], []).append(entry)
        if number >= _PAGES_MAX * LIST_LIMIT_MAX:
            break
    return found


def _limits_set(settings: DeploymentSettings) -> list[str]:
    """Those whose names are known without a job."""
    names = [scope_name(ScopeKind.GROUP, group) for group in settings.groups.limits or {}]
    names += [scope_name(ScopeKind.GROUP_GPUS, group) for group in settings.groups.gpus or {}]
    names += [ScopeKind.GPUS.value] * (settings.quotas.running_gpus is not None)
    return names + [ScopeKind.ALL.value] * (settings.quotas.running_jobs is not None)


def _limit_of(
    repo: Repository, settings: DeploymentSettings, name: str, held: list[SlotToken]
) -> int | None:
    kind, _, subject = name.partition(".")
    if kind == ScopeKind.RUN:
        return next(map(partial(_at_a_time, repo), held), None)
    stated = {
        ScopeKind.GROUP.value: (settings.groups.limits or {}).get(subject),
        ScopeKind.USER.value: settings.quotas.running_jobs_per_user,
        ScopeKind.ALL.value: settings.quotas.running_jobs,
        ScopeKind.GROUP_GPUS.value: (settings.groups.gpus or {}).get(subject),
        ScopeKind.USER_GPUS.value: settings.quotas.running_gpus_per_user,
        ScopeKind.GPUS.value: settings.quotas.running_gpus,
    }
    return stated.get(kind)


def _at_a_time(repo: Repository, token: SlotToken) -> int | None:
    """As the submission of the array says. One read."""
    try:
        claim = repo.find_claim(token.job_id, token.epoch)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    array = None if claim is None else claim.record.spec.array
    return None if array is None else array.at_a_time
