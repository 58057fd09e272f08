"""The settings of a deployment, read and changed."""

from __future__ import annotations

from typing import Any

from stado.core import keys
from stado.core.settings import DeploymentSettings, setting_named, value_of, with_value
from stado.errors import Conflict
from stado.jobs.repository import Repository


def read_settings(repo: Repository) -> DeploymentSettings:
    """As they are now; those of a new deployment where there are none. One read. Raises
    `Unreadable`."""
    found = repo.find(DeploymentSettings, keys.SETTINGS)
    return DeploymentSettings() if found is None else found.value


def change_setting(repo: Repository, name: str, value: Any, *, by: str) -> DeploymentSettings:
    """Sets one, or unsets it (None); nothing is written where it is so already. Of two changes at
    once both have their effect. Raises `Refused` for a name that there is not, `Unreadable` for a
    document that must not be written over."""
    setting_named(name)
    for _ in repo.rounds():
        found = repo.find(DeploymentSettings, keys.SETTINGS)
        settings = DeploymentSettings() if found is None else found.value
        if value_of(settings, name) == value:
            return settings
        changed = with_value(settings, name, value).evolve(
            nonce=repo.entropy.token(), changed_at=repo.now(), changed_by=by
        )
        if found is None:
            if repo.create(keys.SETTINGS, changed) is not None:
                return changed
            continue
        try:
            repo.store.replace(keys.SETTINGS, changed.encode(), found.version)
            return changed
        except Conflict:
            continue
    raise Conflict(keys.SETTINGS, "others keep changing it: try again")
