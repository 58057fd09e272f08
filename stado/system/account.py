"""Which account acts: the name that a submission and an operator's act are recorded under."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from stado.errors import Refused

_CODE = "account_unknown"


def account_name(environment: Mapping[str, str], *, uid: int | None = None) -> str:
    """USER, else LOGNAME, else the account of `uid` (None: of this process).

    Raises `Refused` (`account_unknown`) when a variable is not text or nothing names one. An
    empty variable counts as unset, as it does for a shell."""
    for variable in ("USER", "LOGNAME"):
        name = _read_text(environment, variable)
        if name:
            return name
    return _find_in_user_database(os.getuid() if uid is None else uid)


def _read_text(environment: Mapping[str, str], variable: str) -> str:
    # The environment is bytes, which Python shows as text in the locale's encoding; names are
    # kept as UTF-8 whatever the locale is.
    try:
        return os.fsencode(environment.get(variable, "")).decode("utf-8")
    except UnicodeError as error:
        raise Refused(_CODE, f"{variable} cannot be read: {error}") from error


def _find_in_user_database(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        text = (
            f"neither USER nor LOGNAME is set and the user database holds no account for uid {uid}"
        )
        raise Refused(_CODE, text) from error
