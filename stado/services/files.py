"""The files of a service as they shall be, beside what is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import PurePosixPath

from stado.errors import Refused
from stado.services.environment_file import Merged, names_in, without_values
from stado.services.unit import read_unit

UNIT_MODE = 0o644
SECRET_MODE = 0o600


@dataclass(frozen=True, slots=True)
class WantedFile:
    path: PurePosixPath
    text: str
    mode: int
    present: str | None
    """What it holds now; None: there is none."""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Of variables that it holds, or held: names alone are told. Of a unit all are empty."""

    @property
    def secret(self) -> bool:
        return self.mode == SECRET_MODE

    @property
    def differs(self) -> bool:
        return self.present != self.text

    def shown(self) -> str:
        """Its text without what nobody shall see."""
        return without_values(self.text) if self.secret else self.text

    def changes(self) -> Iterator[str]:
        """What is different, a line each; nothing of a file that is new."""
        if self.present is None or not self.differs:
            return
        if self.secret:
            yield from (f"+{name}=…" for name in self.added)
            yield from (f"~{name}=…" for name in self.changed)
            yield from (f"-{name}=…" for name in self.removed)
            return
        old, new = self.present.splitlines(), self.text.splitlines()
        yield from list(unified_diff(old, new, lineterm="", n=0))[2:]

    def variables(self) -> tuple[str, ...]:
        return names_in(self.text) if self.secret else ()


def wanted_unit(path: PurePosixPath, text: str, present: str | None, *, store: str) -> WantedFile:
    """Raises `Refused` for a unit of this name that is somebody else's, or of another store."""
    if present is not None:
        stated = read_unit(present)
        if stated is None:
            raise Refused(
                "unit_foreign",
                f"{path} is there already and was not written by stado: give this service another "
                "--name, or remove that unit",
            )
        if stated.store != store:
            raise Refused(
                "service_of_another_store",
                f"{path.name} works on {stated.store} here, not on {store}: give this one a --name "
                f"of its own, or first `stado {stated.kind} uninstall`",
            )
    return WantedFile(path, text, UNIT_MODE, present)


def wanted_variables(path: PurePosixPath, merged: Merged, present: str | None) -> WantedFile:
    return WantedFile(
        path, merged.text, SECRET_MODE, present, merged.added, merged.changed, merged.removed
    )
