"""Budgets: how they are written, what is spent of them, and whose new jobs wait for that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from stado.core.budget_words import Budget, Whose, parse_budget, parse_budgets
from stado.core.budgets import (
    SPENT_MAX,
    USERS_TOLD_MAX,
    USERS_TOLD_MIN,
    BudgetSpent,
    BudgetTally,
    Spending,
    begin_of,
    end_of,
    hold_of,
    holds_of,
    news,
    not_below,
    spent_out,
    standings_of,
)
from stado.core.ids import milliseconds
from stado.core.quotas import ScopeKind
from stado.core.settings import BudgetSettings, DeploymentSettings, parse_value
from stado.core.spec import Spec
from stado.core.states import BudgetPeriod, BudgetState, BudgetUnit
from stado.core.usage import Use, digest_word, parse_use, use_name
from stado.errors import Refused
from tests.core.test_costs import CATALOG, HOUR_MS, NOW, PRICED, USE

DAY = timedelta(days=1)
JOB = Spec(command="", group="eval")
WARN_PERCENT = 80


def settings(*rules: str, warn_percent: int | None = None) -> DeploymentSettings:
    return DeploymentSettings(budgets=BudgetSettings(rules=list(rules), warn_percent=warn_percent))


def spending(*uses: Use, rules: list[str], at: datetime = NOW, warn_percent: int = 80) -> Spending:
    tally = BudgetTally([parse_budget(rule) for rule in rules], CATALOG, at)
    for use in uses:
        tally.add(use)
    return Spending(counter=1, at=at, by="c", prices="ours", spent=tally.rows(warn_percent))


def of(told: Spending, whose: str, user: str | None = None) -> BudgetSpent:
    (row,) = (row for row in told.spent if (row.whose, row.user) == (whose, user))
    return row


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (
            "all:5000usd/month",
            Budget(Whose.ALL, "", 5_000_000_000, BudgetUnit.USD, BudgetPeriod.MONTH),
        ),
        ("users:0.1usd/day", Budget(Whose.USERS, "", 100_000, BudgetUnit.USD, BudgetPeriod.DAY)),
        (
            "group.eval:40gpuh/day",
            Budget(Whose.GROUP, "eval", 40_000_000, BudgetUnit.GPUH, BudgetPeriod.DAY),
        ),
        (
            "user.a@b.c:1.000001usd/month",
            Budget(Whose.USER, "a@b.c", 1_000_001, BudgetUnit.USD, BudgetPeriod.MONTH),
        ),
    ],
)
def test_a_budget_is_written_as_it_is_read(text: str, budget: Budget) -> None:
    """R301"""
    assert parse_value("budgets.rules", text) == [text]
    assert parse_budget(text) == budget
    assert budget.text == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "budgets.rules '' must be WHOSE:AMOUNT/PERIOD"),
        ("all", "budgets.rules 'all' must be"),
        ("all:5usd", "budgets.rules 'all:5usd' must be"),
        ("all:5eur/day", "budgets.rules 'all:5eur/day' must be"),
        ("all:-5usd/day", "budgets.rules 'all:-5usd/day' must be"),
        ("all:5usd/week", "budgets.rules 'all:5usd/week' must be"),
        ("team.x:5usd/day", "budgets.rules 'team.x:5usd/day' must be"),
        ("group.:5usd/day", "budgets.rules 'group.:5usd/day' must be"),
        ("all:0usd/day", "budgets.rules 'all:0usd/day' is a budget of nothing"),
        ("all:0.0gpuh/day", "is a budget of nothing"),
        ("all:5usd/day all:6usd/day", "states 'all:5usd/day' and 'all:6usd/day'"),
    ],
)
def test_what_is_no_budget_is_refused_by_name(text: str, why: str) -> None:
    """R301"""
    with pytest.raises(Refused, match=r".") as refused:
        parse_budgets(text)
    assert why in refused.value.text


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("100", 100), ("080", 80)])
def test_a_warning_comes_from_a_part_on(text: str, value: int) -> None:
    assert parse_value("budgets.warn_percent", text) == value


@pytest.mark.parametrize("text", ["0", "101", "-1", "80%", "1e1"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="a whole number from 1 to 100"):
        parse_value("budgets.warn_percent", text)


@pytest.mark.parametrize(
    ("period", "at", "begin", "end"),
    [
        (BudgetPeriod.DAY, "2026-03-29T00:00", "2026-03-29", "2026-03-30"),
        (BudgetPeriod.DAY, "2026-03-29T23:59", "2026-03-29", "2026-03-30"),
        (BudgetPeriod.MONTH, "2026-12-31T23:59", "2026-12-01", "2027-01-01"),
        (BudgetPeriod.MONTH, "2028-02-01T00:00", "2028-02-01", "2028-03-01"),
    ],
)
def test_periods_are_of_the_calendar_in_utc(
    period: BudgetPeriod, at: str, begin: str, end: str
) -> None:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert begin_of(period, moment) == datetime.fromisoformat(begin).replace(tzinfo=UTC)
    assert end_of(period, moment) == datetime.fromisoformat(end).replace(tzinfo=UTC)


# --- what is spent ------------------------------------------------------------------------


def test_what_fell_into_the_period_counts_for_whom_it_was() -> None:
    """R301: dollars as in `cost report`, GPU hours as in `usage`; cut where the period begins."""
    told = spending(
        replace(PRICED, wall_ms=24 * HOUR_MS, gpus=2, group="eval"),
        replace(PRICED, epoch=2, user="bob"),
        replace(USE, epoch=3, wall_ms=HOUR_MS // 2),
        rules=["all:5usd/day", "all:500usd/month", "user.bob:5usd/day", "group.eval:40gpuh/day"],
    )
    assert [row.spent_micro for row in told.spent] == [
        26_000_000,
        50_000_000,
        2_000_000,
        24_000_000,
    ]
    assert (told.spent[0].unpriced_ms, told.spent[0].unpriced_epochs) == (HOUR_MS // 2, 1)
    assert [row.unpriced_epochs for row in told.spent[2:]] == [0, 0]


def test_what_ended_before_the_period_counts_for_none() -> None:
    told = spending(replace(PRICED, ended_ms=PRICED.ended_ms - 86_400_000), rules=["all:5usd/day"])
    assert told.spent[0].spent_micro == 0


def test_a_use_without_its_group_counts_for_no_group() -> None:
    """As those of older programs are."""
    told = spending(PRICED, rules=["group.eval:5usd/day"])
    assert told.spent[0].spent_micro == 0


def test_the_name_of_a_use_tells_its_group() -> None:
    use = replace(PRICED, group="night shift")
    assert parse_use(use_name(use)) == use


def test_of_each_user_those_are_told_who_have_spent_most() -> None:
    """R301: all who are warned, a few in any case, and the most that any other has."""
    uses = [
        replace(PRICED, epoch=number + 1, user=f"u{number:03d}", wall_ms=number * HOUR_MS // 100)
        for number in range(1, 60)
    ]
    told = spending(*uses, rules=["users:1usd/day"])
    named = [row for row in told.spent if row.user is not None]
    assert len(named) == USERS_TOLD_MIN
    assert named[0].user == "u059"
    assert (named[0].spent_micro, named[0].state) == (1_180_000, BudgetState.HELD)
    assert of(told, "users").spent_micro == 780_000
    told = spending(*uses, rules=["users:0.1usd/day"])
    assert {row.state for row in told.spent if row.user} == {BudgetState.WARNED, BudgetState.HELD}
    assert len([row for row in told.spent if row.user]) == 56


def test_a_user_whose_name_was_too_long_for_a_use_has_spent_all_of_it() -> None:
    """What tells him by a digest, and what by his name."""
    name = "a" * 80
    told = spending(
        replace(PRICED, user=name),
        replace(PRICED, epoch=2, user=digest_word(name)),
        rules=["users:3usd/day", f"user.{name}:3usd/day"],
    )
    assert of(told, "users", name).spent_micro == 4_000_000
    assert of(told, f"user.{name}").spent_micro == 4_000_000
    by_digest = spending(replace(PRICED, user=digest_word(name)), rules=["users:1usd/day"])
    (hold,) = holds_of(spent_out(settings("users:1usd/day"), by_digest, NOW))
    assert hold.holds(JOB, name, NOW)
    assert not hold.holds(JOB, "b" * 80, NOW)


# --- who waits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "user", "group", "waits"),
    [
        ("all:2usd/day", None, None, True),
        ("group.eval:2usd/day", "bob", "eval", True),
        ("group.eval:2usd/day", "ada", None, False),
        ("group.eval:2usd/day", "ada", "other", False),
        ("user.ada:2usd/day", "ada", None, True),
        ("user.ada:2usd/day", "bob", "eval", False),
        ("user.ada:2usd/day", None, None, False),
        ("users:2usd/day", "ada", None, True),
        ("users:2usd/day", "bob", None, False),
        ("users:2.000001usd/day", "ada", None, False),
    ],
)
def test_who_has_spent_all_starts_nothing_new(
    rule: str, user: str | None, group: str | None, waits: bool
) -> None:
    """R302"""
    told = spending(replace(PRICED, group="eval"), rules=[rule])
    spent = spent_out(settings(rule), told, NOW)
    spec = Spec(command="", group=group)
    assert any(hold.holds(spec, user, NOW) for hold in holds_of(spent)) is waits
    assert bool(standings_of(spec, user=user, found=spent)) is waits


def test_more_in_the_settings_frees_at_once_and_less_holds() -> None:
    """R302: by what is spent, which the document says, and the amount as it is now."""
    told = spending(PRICED, rules=["all:2usd/day"])
    assert spent_out(settings("all:2usd/day"), told, NOW)
    assert not spent_out(settings("all:3usd/day"), told, NOW)
    assert spent_out(settings("all:1usd/day"), told, NOW)
    assert not spent_out(settings("all:2usd/month"), told, NOW)
    assert not spent_out(settings("all:2gpuh/day"), told, NOW)
    assert not spent_out(DeploymentSettings(), told, NOW)
    assert not spent_out(settings("all:2usd/day"), None, NOW)


def test_a_new_period_frees_by_itself() -> None:
    """R302: also where no coordinator lives that would say so."""
    rules = ["all:2usd/day", "user.ada:2usd/month"]
    told = spending(PRICED, rules=rules)
    midnight = datetime(2026, 3, 21, tzinfo=UTC)
    before, after = midnight - timedelta(seconds=1), midnight
    assert [one.name for one in spent_out(settings(*rules), told, before)] == ["all", "user.ada"]
    assert [one.name for one in spent_out(settings(*rules), told, after)] == ["user.ada"]
    (hold,) = (
        one for one in holds_of(spent_out(settings(*rules), told, before)) if not one.subject
    )
    assert hold.ends_at == midnight
    assert hold.holds(JOB, None, before)
    assert not hold.holds(JOB, None, after)
    assert not spent_out(settings(*rules), told, datetime(2026, 4, 1, tzinfo=UTC))


def test_of_two_budgets_of_the_same_jobs_the_longer_holds() -> None:
    rules = ["all:2usd/day", "all:2usd/month"]
    (hold,) = holds_of(spent_out(settings(*rules), spending(PRICED, rules=rules), NOW))
    assert hold.ends_at == datetime(2026, 4, 1, tzinfo=UTC)
    assert hold_of(hold.plain()) == hold
    assert hold.kind is ScopeKind.ALL


# --- what is told -------------------------------------------------------------------------


def states(told: list[BudgetSpent]) -> list[BudgetState]:
    return [row.state for row in told]


def test_each_step_is_told_once_in_its_period() -> None:
    """R301: whichever coordinator finds it."""
    rules = ["all:2usd/day"]
    warned = spending(replace(PRICED, wall_ms=round(0.8 * HOUR_MS)), rules=rules)
    held = spending(PRICED, rules=rules)
    assert states(list(news(warned.spent, None, NOW))) == [BudgetState.WARNED]
    assert list(news(warned.spent, warned, NOW)) == []
    assert states(list(news(held.spent, warned, NOW))) == [BudgetState.HELD]
    assert list(news(held.spent, held, NOW)) == []
    assert list(news(warned.spent, held, NOW)) == []
    assert states(list(news(warned.spent, held, NOW + DAY))) == [BudgetState.WARNED]


def test_just_below_is_not_yet() -> None:
    told = spending(replace(PRICED, wall_ms=round(0.8 * HOUR_MS) - 1), rules=["all:2usd/day"])
    assert told.spent[0].state is BudgetState.OK


def test_what_could_not_be_read_frees_nobody() -> None:
    """R302: in its period what was known before holds; in another it says nothing."""
    rules = ["all:2usd/day", "users:2usd/day"]
    before = spending(PRICED, rules=rules)
    nothing = spending(rules=rules)
    kept = not_below(nothing.spent, before, NOW, settings(*rules))
    assert {(row.whose, row.user): row.spent_micro for row in kept} == {
        ("all", None): 2_000_000,
        ("users", None): 0,
        ("users", "ada"): 2_000_000,
    }
    assert kept[0].state is BudgetState.HELD
    assert not_below(nothing.spent, before, NOW + DAY, settings(*rules)) == nothing.spent
    assert not_below(nothing.spent, None, NOW, settings(*rules)) == nothing.spent


def test_what_held_before_is_free_where_the_amount_was_raised() -> None:
    before = spending(PRICED, rules=["all:2usd/day"])
    assert before.spent[0].state is BudgetState.HELD
    now = spending(rules=["all:100usd/day"])
    (row,) = not_below(now.spent, before, NOW, settings("all:100usd/day"))
    assert (row.spent_micro, row.state) == (2_000_000, BudgetState.OK)


def test_where_there_is_no_room_for_all_who_is_held_stays() -> None:
    """Of more rows than the document has room for."""

    def rows(name: str, count: int, spent: int) -> list[BudgetSpent]:
        return [
            BudgetSpent(
                whose="users",
                user=f"{name}{number}",
                unit=BudgetUnit.USD,
                period=BudgetPeriod.DAY,
                spent_micro=spent,
            )
            for number in range(count)
        ]

    before = Spending(counter=1, at=NOW, by="c", prices="ours", spent=rows("old", 100, 9_000_000))
    kept = not_below(rows("new", SPENT_MAX, 1), before, NOW, settings("users:1usd/day"))
    assert len(kept) == SPENT_MAX
    assert sum(row.state is BudgetState.HELD for row in kept) == 100


def test_who_is_over_and_has_no_room_is_counted_and_never_told_as_held() -> None:
    uses = [
        replace(PRICED, epoch=number + 1, user=f"u{number}") for number in range(USERS_TOLD_MAX + 7)
    ]
    told = spending(*uses, rules=["users:1usd/day"])
    assert sum(row.state is BudgetState.HELD for row in told.spent) == USERS_TOLD_MAX
    others = of(told, "users")
    assert (others.state, others.over) == (BudgetState.WARNED, 7)


def test_what_a_clock_that_is_ahead_has_of_tomorrow_counts_tomorrow_alone() -> None:
    rules = ["all:5gpuh/day"]
    ended_ms = milliseconds(end_of(BudgetPeriod.DAY, NOW)) + HOUR_MS
    use = replace(PRICED, ended_ms=ended_ms, wall_ms=2 * HOUR_MS, gpus=1)
    assert spending(use, rules=rules).spent[0].spent_micro == 0
    assert spending(use, rules=rules, at=NOW + DAY).spent[0].spent_micro == 1_000_000
