"""What a page of the documentation shows of a terminal: commands, and what they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^(?P<ticks>```+)(?P<language>\w*)\s*$")
_PROMPT = "$ "
_RUN = re.compile(r"^<!-- run(?:: (?P<command>.*?))?\s*(?P<end>-->)?$")
_NOT_RUN = re.compile(r"^<!-- not run: (?P<reason>.+?) -->$")

INTERRUPT = "^C"
"""As a line of its own: somebody presses Ctrl-C here."""

ELISION = "…"


@dataclass
class Step:
    """A command of a page."""

    line: int
    command: str
    shown: list[str] = field(default_factory=list)
    """What the page says that it prints. Nothing is expected of it where this is empty."""
    hidden: bool = False
    """It prepares something, and readers do not see it."""

    @property
    def until(self) -> list[str] | None:
        """What is read before Ctrl-C is pressed; None where nobody presses it."""
        if INTERRUPT not in self.shown:
            return None
        return [*self.shown[: self.shown.index(INTERRUPT)], ELISION]

    def difference(self, said: str, exit_code: int) -> str | None:
        """Between what is shown and what it did; None where there is none. Of a command that fails
        a page shows what it says."""
        if not "".join(self.shown).strip(ELISION) and exit_code != 0:
            return f"exit code {exit_code}"
        return differs(self.shown, said) if self.shown else None


@dataclass(frozen=True)
class Page:
    """`steps` in order; `not_run`: why a block of commands cannot be run here, by its line."""

    steps: list[Step]
    not_run: dict[int, str]


class BadPage(Exception):
    """It cannot be read as commands and their output."""


def read_page(path: Path) -> Page:
    """Blocks between fences that have a line with a prompt. Before one there may be a comment:
    `<!-- run: COMMAND -->`, or over several lines, is run and not shown; `<!-- not run: WHY -->`
    leaves the block after it out."""
    steps: list[Step] = []
    not_run: dict[int, str] = {}
    reason: str | None = None
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        if (prepared := _RUN.match(line)) is not None:
            command = prepared["command"] or _rest_of_comment(lines, path)
            steps.append(Step(number, command, hidden=True))
        elif (left_out := _NOT_RUN.match(line)) is not None:
            reason = left_out["reason"]
        elif (fence := _FENCE.match(line)) is not None:
            block = list(_block(lines, fence["ticks"]))
            if any(text.startswith(_PROMPT) for _, text in block):
                if reason is None:
                    steps += _steps(block, path)
                else:
                    not_run[number] = reason
            reason = None
    return Page(steps, not_run)


def _rest_of_comment(lines: Iterator[tuple[int, str]], path: Path) -> str:
    found: list[str] = []
    for _, line in lines:
        if line.rstrip().endswith("-->"):
            return "\n".join([*found, line.rstrip().removesuffix("-->")])
        found.append(line)
    raise BadPage(f"{path.name}: a comment has no end")


def _block(lines: Iterator[tuple[int, str]], ticks: str) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line.rstrip() == ticks:
            return
        yield number, line


def _steps(block: list[tuple[int, str]], path: Path) -> Iterator[Step]:
    step: Step | None = None
    open_command = False
    for number, line in block:
        if open_command:
            assert step is not None
            step.command += "\n" + line
        elif line.startswith(_PROMPT):
            if step is not None:
                yield step
            step = Step(number, line.removeprefix(_PROMPT))
        elif step is None:
            raise BadPage(f"{path.name}:{number}: output without a command")
        else:
            step.shown.append(line)
            continue
        open_command = _goes_on(step.command)
    if step is not None:
        yield step


def _goes_on(command: str) -> bool:
    """Whether a shell would ask for more: within quotes, in a here-document, after a backslash."""
    here = re.search(r"<<-?\s*'?(\w+)'?", command)
    if here is not None:
        return command.splitlines()[-1].strip() != here[1] or "\n" not in command
    bare = re.sub(r"\\.", "", command)
    if command.endswith("\\"):
        return True
    quote = ""
    for letter in bare:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
    return bool(quote)


def differs(shown: list[str], said: str) -> str | None:
    """Where what a page shows is not what a command said; None where it is. Ids, digests, numbers,
    times, and the names of this machine may be others; `…` stands for anything."""
    parts = " ".join(line for line in shown if line != INTERRUPT).split(ELISION)
    actual = alike(said)
    wanted = [alike(part) for part in parts]
    if len(wanted) == 1:
        return None if wanted[0] == actual else f"shown: {wanted[0]}\nsaid:  {actual}"
    at = 0
    for part in wanted:
        found = actual.find(part, at)
        if found < 0:
            return f"shown: {part}\nnot in: {actual[at:]}"
        at = found + len(part)
    return None


_ID = r"(?<![A-Za-z])[a-z]{16}(?![A-Za-z])"


class Ids:
    """Those that a page shows, and those that a run of it has got in their place."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}

    def learn(self, shown: list[str], said: str) -> None:
        """From each shown line with an id and the first line of what was said that is alike. A page
        may break one line into two."""
        unused = said.splitlines()
        for line, following in zip(shown, [*shown[1:], ""], strict=False):
            if re.search(_ID, line) is None:
                continue
            wanted = (alike(line), alike(f"{line} {following}"))
            same = next((other for other in unused if alike(other) in wanted), None)
            if same is not None:
                unused.remove(same)
                self._actual.update(zip(re.findall(_ID, line), re.findall(_ID, same), strict=False))

    def put_into(self, command: str) -> str:
        """The command with the ids of this run, also where the end of one names a policy."""
        for shown, actual in self._actual.items():
            command = command.replace(shown, actual)
            command = command.replace(f"policy_{shown[-6:]}:", f"policy_{actual[-6:]}:")
        return command


_ALIKE = [
    (re.compile(r"\b\w+@[\w.-]+"), "WORKER"),
    (re.compile(_ID), "ID"),
    (re.compile(r"\b[a-z]{6}\b(?=:|\b)(?<=policy_......)"), "ID"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "N"),
    (re.compile(r"N-N-N[ T]N:N(?::N)?Z?"), "TIME"),
    (re.compile(r"\bN ?(?:[KMGT]i?B|kB|bytes?)\b"), "SIZE"),
    (re.compile(r"\b(?:N ?[dhms](?=N|\b) ?)+"), "DURATION "),
    (re.compile(r"\) in DURATION "), ")"),  # Of a submission, where it took more than a second.
    (re.compile(r", by its report of DURATION ago"), ""),  # Of a worker, where it was not just now.
    (re.compile(r"\bcores\b"), "core"),
    (re.compile(r"\s+"), " "),
]


def alike(text: str) -> str:
    """The words of it, without what differs from run to run."""
    for pattern, word in _ALIKE:
        text = pattern.sub(word, text)
    return text.strip()
