"""What each job of a selection answered to a change: done, or refused and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from stado.cli import render
from stado.errors import Ambiguous, NotFound, Refused
from stado.jobs.repository import PARALLEL_REQUESTS

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.jobs.repository import Repository

Answer = TypeVar("Answer")

_TOLD_EACH_MAX = 2
"""Refusals of one kind that are told one by one; `--json` has all."""


@dataclass(frozen=True, slots=True)
class Answers(Generic[Answer]):
    """By job id, in the order of the selection."""

    done: dict[str, Answer]
    refused: dict[str, Refused]

    def refused_fields(self) -> list[dict[str, str]]:
        return [
            {"job_id": job_id, "code": error.code, "text": error.text}
            for job_id, error in self.refused.items()
        ]

    def tell_refused(self, done: str) -> None:
        """`done`: what they were not, `retried`. A line each for two of a kind; more are counted
        behind the first."""
        by_code: dict[str, list[Refused]] = {}
        for error in self.refused.values():
            by_code.setdefault(error.code, []).append(error)
        for code, errors in by_code.items():
            if len(errors) > _TOLD_EACH_MAX:
                what = f"not {done}: {len(errors):,} jobs ({code}; --json lists them)"
                render.tell(f"stado: {what}, such as: {errors[0].text}")
                continue
            for error in errors:
                render.tell(f"stado: not {done}: {error.text} ({code})")

    def refused_text(self) -> str:
        """`; 2 were not`, after what was done."""
        count = len(self.refused)
        return "" if not count else f"; {count:,} {'was' if count == 1 else 'were'} not"


def each_of(
    repo: Repository, selection: Selection, change: Callable[[str], Answer]
) -> Answers[Answer]:
    """What `change` answered for each job. Raises the refusal of a job that was named alone; of a
    batch they are collected."""

    def answer(job_id: str) -> Answer | Refused:
        try:
            return change(job_id)
        except Refused as error:
            return error
        except NotFound as error:
            return Refused("job_unknown", str(error))
        except Ambiguous as error:
            return Refused("outcome_unknown", str(error))

    if not selection.batch:
        (job_id,) = selection.job_ids
        return Answers({job_id: change(job_id)}, {})
    found = repo.tasks.map(answer, selection.job_ids, limit=PARALLEL_REQUESTS)
    pairs = list(zip(selection.job_ids, found, strict=True))
    return Answers(
        done={job_id: one for job_id, one in pairs if not isinstance(one, Refused)},
        refused={job_id: one for job_id, one in pairs if isinstance(one, Refused)},
    )
