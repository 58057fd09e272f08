"""Groups of jobs that a deployment says something of: by a limit, a window or a budget. Pure."""

from __future__ import annotations

from difflib import get_close_matches

from stado.core.budget_words import Whose, parse_budget
from stado.core.quotas import ScopeKind
from stado.core.settings import DeploymentSettings
from stado.core.windows import restrictions

_ALIKE = 0.6
"""From 0 to 1, as `difflib` has it: `bgi` is meant to be `big`."""

_NAMED_MAX = 2


def known_groups(settings: DeploymentSettings) -> set[str]:
    """By their names."""
    windows = {one.subject for one in restrictions(settings) if one.kind is ScopeKind.GROUP}
    budgets = map(parse_budget, settings.budgets.rules or [])
    of_budgets = {one.subject for one in budgets if one.whose is Whose.GROUP}
    return windows | of_budgets | {*(settings.groups.limits or {}), *(settings.groups.gpus or {})}


def groups_meant(settings: DeploymentSettings, group: str | None) -> list[str]:
    """Known groups that look like this one, which is none; none where it is one, or none is
    alike."""
    known = known_groups(settings)
    if group is None or group in known:
        return []
    by_letters = {one.lower(): one for one in known}
    close = get_close_matches(group.lower(), sorted(by_letters), n=_NAMED_MAX, cutoff=_ALIKE)
    return [by_letters[one] for one in close]
