"""Changes of the config file: they take effect whole, and leave what people wrote as it stands.

The one module that imports tomlkit, so that commands which only read start without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit
from tomlkit.exceptions import TOMLKitError

from stado.cli.context import alone_with, config_path
from stado.config_file import CONTEXTS, ConfigFile, Line, line_of, lines_of, read_config
from stado.errors import Refused


class Change(NamedTuple):
    """Sets a key or, with None, removes a key or a whole table."""

    path: tuple[str, ...]
    value: str | None


def change_config(decide: Callable[[ConfigFile], Sequence[Change]]) -> Path:
    """Makes the changes that `decide` asks for when it is shown the file; the file's path.

    Nobody else changes the file meanwhile, and who reads it finds the old or the new one. A link
    stays a link. Raises `Refused` for a file that cannot be read, understood, or written."""
    path = config_path()
    if path.parts[:1] == ("~",):
        raise Refused(
            "config_invalid", "nothing tells where your home is: set HOME or STADO_CONFIG"
        )
    target = Path(os.path.realpath(path))
    with _naming_the_file(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone_with(target.with_name(f".{target.name}.lock")):
            file = read_config(_bytes_of(target), str(path), unknown_keys=True)
            changed = changed_text(file, decide(file))
            if changed != file.text:
                _replace(target, changed.encode())
    return path


def changed_text(file: ConfigFile, changes: Sequence[Change]) -> str:
    """The text after some changes. Raises `Refused` when it cannot be had without harm."""
    text = file.text
    for change in changes:
        text = _changed(file.name, text, change)
    return text


def _changed(name: str, text: str, change: Change) -> str:
    """Lines first, which keeps comments where they belong; then tomlkit, for whatever else TOML
    allows. Only a text that means what was meant is taken."""
    meant = _meaning(text)
    _apply(meant, change)
    for edit in (_by_lines, _by_document):
        with suppress(TOMLKitError, ValueError):
            edited = edit(text, change)
            if edited is not None and _without_empty(_meaning(edited)) == _without_empty(meant):
                return edited
    raise Refused(
        "config_invalid",
        f"{name}, line {line_of(text, change.path)}: {'.'.join(change.path)} cannot be changed as "
        "it is written there: edit the file by hand",
    )


def _meaning(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != CONTEXTS or value}


def _apply(document: MutableMapping[str, Any], change: Change) -> None:
    *parents, key = change.path
    for parent in parents:
        if parent not in document:
            document[parent] = {}
        document = document[parent]
    if change.value is None:
        document.pop(key, None)
    else:
        document[key] = change.value


def _by_document(text: str, change: Change) -> str:
    document = tomlkit.parse(text)
    _apply(document, change)
    return tomlkit.dumps(document)


def _by_lines(text: str, change: Change) -> str | None:
    """None where lines are not enough."""
    stated = list(lines_of(text))
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    if change.value is None:
        return _cut(lines, stated, change.path)
    if any(line.path == change.path for line in stated):
        return None
    new = f"{change.path[-1]} = {tomlkit.item(change.value).as_string()}\n"
    table = change.path[:-1]
    section = _section(stated, table)
    if section:
        return _inserted(lines, section[-1].number, [new])
    if table:
        gap = ["\n"] if lines else []
        return _inserted(lines, len(lines), [*gap, f"[{'.'.join(table)}]\n", new])
    at = _lines_above_tables(lines, stated)
    return _inserted(lines, at, [new, "\n"] if at < len(lines) else [new])


def _inserted(lines: list[str], at: int, new: list[str]) -> str:
    """The last line of a file may lack its end."""
    above = "".join(lines[:at])
    end = "" if above.endswith("\n") or not above else "\n"
    return "".join([above, end, *new, *lines[at:]])


def _cut(lines: list[str], stated: list[Line], table: tuple[str, ...]) -> str | None:
    """Without the lines of a table; what is written above and below it is not touched."""
    section = _section(stated, table)
    if not section or not section[0].is_table:
        return None
    begin, end = section[0].number - 1, section[-1].number
    while end < len(lines) and not lines[end].strip():
        end += 1
    while end == len(lines) and begin > 0 and not lines[begin - 1].strip():
        begin -= 1
    return "".join([*lines[:begin], *lines[end:]])


def _section(stated: list[Line], table: tuple[str, ...]) -> list[Line]:
    """The line that begins a table (of the top there is none), and those of its keys."""
    found: list[Line] = []
    within = not table
    for line in stated:
        if line.is_table:
            within = line.path == table
        if within:
            found.append(line)
    return found


def _lines_above_tables(lines: list[str], stated: list[Line]) -> int:
    """How many lines come before the first table and the comment that stands on it."""
    head = next((line.number - 1 for line in stated if line.is_table), len(lines))
    while 0 < head < len(lines) and lines[head - 1].lstrip().startswith("#"):
        head -= 1
    return head


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _replace(path: Path, data: bytes) -> None:
    """The new file has the old one's mode and owner. What a killed writer left is removed."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        with suppress(FileNotFoundError):
            old = path.stat()
            with suppress(PermissionError):
                os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, old.st_mode & 0o7777)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


@contextmanager
def _naming_the_file(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        raise Refused(
            "config_invalid", f"{path} cannot be changed: {error.strerror}{where}"
        ) from None
