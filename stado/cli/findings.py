"""What a check-up saw: as lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

INDENT = 18
TOLD_WHEN_WELL = ("store", "agents", "coordinator", "queue")


class Finding(NamedTuple):
    """What a check saw. `remedy` is None where nothing is to be done; `unknown` where it could not
    look, which is no word that all is well."""

    check: str
    code: str
    """Stable, for programs."""
    text: str
    remedy: str | None = None
    unknown: bool = False


def findings_fields(findings: Sequence[Finding]) -> dict[str, Any]:
    """`healthy`: nothing is to be done, by what was looked at; `complete`: all was."""
    return {
        "healthy": not any(one.remedy for one in findings),
        "complete": not any(one.unknown for one in findings),
        "findings": [
            {**one._asdict(), "ok": one.remedy is None and not one.unknown} for one in findings
        ],
    }


def print_findings(findings: Sequence[Finding]) -> None:
    """What is to be done, then what is not known; one line where all is well."""
    from stado.cli import render

    to_do = [one for one in findings if one.remedy is not None]
    unknown = [one for one in findings if one.unknown]
    for one in to_do:
        render.print_wrapped(f"FIX  {one.check:<11}  {one.text}", indent=INDENT)
        render.print_wrapped(f"{'':<{INDENT}}-> {one.remedy}", indent=INDENT + 3)
    for one in unknown:
        render.print_wrapped(f"?    {one.check:<11}  {one.text}", indent=INDENT)
    well = len(findings) - len(to_do) - len(unknown)
    if not to_do:
        told = [one.text for one in findings if one.check in TOLD_WHEN_WELL and not one.unknown]
        begin = "nothing to mend in what was looked at" if unknown else "all is well"
        render.print_wrapped(f"{begin}: {'; '.join(told)}")
    elif well:
        checks = "1 other check is" if well == 1 else f"{well} other checks are"
        render.tell(f"{checks} well (--json tells them)")
