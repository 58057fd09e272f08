"""What is said beside the answer to a submission: of words that do not do what they seem to, and of
what may not be so yet. Remarks, for people; nothing is refused by them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stado.core.settings import DeploymentSettings
    from stado.core.spec import Spec
    from stado.jobs.repository import Repository


def tell_remarks(repo: Repository, spec: Spec) -> None:
    """Of jobs that are queued now, on stderr. One read."""
    from stado.cli.render import tell

    for remark in remarks_on(repo, spec, queued=True):
        tell(f"note: {remark}")


def remarks_on(repo: Repository, spec: Spec, *, queued: bool = False) -> Iterator[str]:
    """On what was asked for; `queued`: also on what may not be so yet. One read; nothing is said of
    what cannot be seen."""
    if spec.yieldable and not spec.max_yields:
        yield (
            "--yieldable without --max-yields lets it be put back not once, so it is protected: "
            "--max-yields 3 lets it be put back three times"
        )
    settings = _settings(repo)
    if settings is None:
        return
    from stado.core.known_groups import groups_meant

    meant = groups_meant(settings, spec.group)
    if meant:
        yield (
            f"the deployment says nothing of group {spec.group}, so it falls under no limit, "
            f"window or budget of a group; did you mean {' or '.join(meant)}?"
        )
    news = news_text(settings.changed_at, repo.now()) if queued else None
    if news is not None:
        yield news


def _settings(repo: Repository) -> DeploymentSettings | None:
    """None where they cannot be read."""
    from stado.errors import StoreError, Unreadable
    from stado.jobs.settings import read_settings

    try:
        return read_settings(repo)
    except (StoreError, Unreadable):
        return None


def news_text(changed_at: datetime | None, now: datetime) -> str | None:
    """Of settings that not all workers have to know yet; None: they do."""
    from stado.cli.render import duration
    from stado.core.settings import WORKERS_LOOK_SECONDS

    if changed_at is None:
        return None
    seconds = max(0.0, (now - changed_at).total_seconds())
    if seconds > WORKERS_LOOK_SECONDS:
        return None
    return (
        f"the settings were changed {duration(seconds)} ago; workers look at them each two "
        "minutes, and go by the earlier ones until then"
    )
