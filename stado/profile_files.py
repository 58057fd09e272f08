"""Where submit profiles are, and what those files say: the ones that come with stado, or those of
the folder that `WC_PROFILES_DIR` names, and never both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stado.errors import Refused

if TYPE_CHECKING:
    from stado.core.profiles import Profile

PROFILES_VARIABLE = "WC_PROFILES_DIR"
KINDS_FOLDER = "kinds"
"""Below the folder of profiles: the kinds of workloads, each a file of its own."""

_FILES_MAX = 10_000
_COMMAND = "true"
"""Stands for what is run where a profile does not say it."""


@dataclass(frozen=True, slots=True)
class ProfileFolder:
    """A folder of profiles, or of kinds of workloads."""

    path: Path
    of_kinds: bool = False
    """Whether its profiles are kinds of workloads."""

    @property
    def _what(self) -> str:
        return "kind of workload" if self.of_kinds else "profile"

    @property
    def kinds(self) -> ProfileFolder:
        """The kinds of workloads that belong to it; none where there is no such folder."""
        return ProfileFolder(self.path / KINDS_FOLDER, of_kinds=True)

    def names(self) -> list[str]:
        """In order. Raises `Refused` for a folder that cannot be read."""
        from stado.core.profiles import NAME_PATTERN, PROFILE_SUFFIX

        try:
            with os.scandir(self.path) as entries:
                files = [entry.name for entry in islice(entries, _FILES_MAX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            _unreadable(str(self.path), error)
        names = [
            file.removesuffix(PROFILE_SUFFIX) for file in files if file.endswith(PROFILE_SUFFIX)
        ]
        return sorted(name for name in names if NAME_PATTERN.fullmatch(name))

    def read(self, name: str) -> Profile:
        """The profile of that name, checked. Raises `Refused`, naming what is wrong in which
        file, or which profiles there are."""
        from stado.core.profiles import NAME_PATTERN, PROFILE_SUFFIX

        path = self.path / f"{name}{PROFILE_SUFFIX}"
        if not NAME_PATTERN.fullmatch(name) or not path.is_file():
            self._refuse_name(name)
        profile = read_file(path, name)
        if self.of_kinds:
            from stado.core.profiles import check_kind

            check_kind(profile)
        return profile

    def _refuse_name(self, name: str) -> NoReturn:
        names = self.names()
        close = get_close_matches(name, names, n=2)
        there = f"there is {', '.join(names)}" if names else "there is none"
        meant = f"did you mean {' or '.join(close)}?" if close else there
        code = "workload_kind_unknown" if self.of_kinds else "profile_unknown"
        raise Refused(code, f"there is no {self._what} {name!r} in {self.path}: {meant}")


def profile_folder(environment: Mapping[str, str]) -> ProfileFolder:
    """The folder that counts. Raises `Refused` for a variable that names none: a profile of the
    same name that comes with stado is never taken in its place. An empty variable counts as
    unset."""
    try:
        named = os.fsencode(environment.get(PROFILES_VARIABLE, "")).decode("utf-8")
    except UnicodeError as error:
        _refuse_variable(f"cannot be read: {error}", error)
    if not named:
        return ProfileFolder(_bundled())
    try:
        is_folder = os.path.isdir(named)
    except (OSError, ValueError) as error:
        _refuse_variable(f"cannot be read: {error}", error)
    if not is_folder:
        _refuse_variable(f"names {named}, which is not a directory")
    return ProfileFolder(Path(named))


def _refuse_variable(flaw: str, cause: Exception | None = None) -> NoReturn:
    raise Refused("profiles_dir_invalid", f"{PROFILES_VARIABLE} {flaw}") from cause


def _bundled() -> Path:
    """Beside the package where it is installed; beside its folder in a checkout."""
    here = Path(__file__).parent
    installed = here / "bundled_profiles"
    return installed if installed.is_dir() else here.parent / "profiles"


def read_file(path: Path, name: str | None = None) -> Profile:
    """The profile in a file, checked. Raises `Refused`, naming the file and the field."""
    from stado.core.profiles import PROFILE_BYTES_MAX, PROFILE_SUFFIX, parse_profile

    try:
        with open(path, "rb") as file:
            data = file.read(PROFILE_BYTES_MAX + 1)
    except OSError as error:
        _unreadable(str(path), error)
    name = path.name.removesuffix(PROFILE_SUFFIX) if name is None else name
    profile = parse_profile(data, name=name, where=str(path))
    _check(profile)
    return profile


def _unreadable(what: str, error: OSError) -> NoReturn:
    raise Refused("profile_unreadable", f"{what} cannot be read: {error.strerror}") from None


def _check(profile: Profile) -> None:
    """As far as that can be done without a store: what is pinned is looked for at the submission.
    Raises `Refused`."""
    from dataclasses import fields

    from stado.core.envelope import with_cards
    from stado.core.spec import checked_spec, make_request
    from stado.core.stated import stated_fields
    from stado.pinning import Unpinned

    unpinned = {one.name for one in fields(Unpinned)}
    try:
        stated = stated_fields(profile.options)
        of_spec = {name: value for name, value in stated.items() if name not in unpinned}
        shared = checked_spec(**with_cards(of_spec))
        command = _COMMAND if profile.command is None else profile.command
        make_request([command], shared, batch=False)
    except Refused as error:
        raise Refused(error.code, f"{profile.where}: {error.text}") from None
