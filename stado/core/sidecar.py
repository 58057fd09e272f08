"""What a job says of its checkpoint: a small JSON file in the checkpoint folder, taken with the
rest of it. Jobs write it in any language, so whatever is in it may be wrong.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stado.core.documents import Count, Document, Part, parse

NAME = "stado-checkpoint.json"
"""At the top of the checkpoint folder."""

BYTES_MAX = 64 * 1024

MetricName = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,64}\Z")]
"""Visible ASCII without blanks: it is printed in tables."""

Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class CheckpointMeta(Part, frozen=True, kw_only=True):
    """What is known of a save: how far it got, and how good it is."""

    step: Count | None = None
    metric: MetricName | None = None
    value: Finite | None = None
    """Of the metric; None when nothing was measured since the save before."""
    higher_is_better: bool = True

    def is_better_than(self, other: CheckpointMeta | None) -> bool:
        """Whether this one takes the place of the best so far. One that measured nothing never
        does; one that measures something else begins anew."""
        if self.value is None:
            return False
        if other is None or other.value is None or self.criterion != other.criterion:
            return True
        if self.higher_is_better:
            return self.value > other.value
        return self.value < other.value

    @property
    def criterion(self) -> tuple[str | None, bool]:
        """Only values of the same one can be compared."""
        return self.metric, self.higher_is_better


class Sidecar(Document, frozen=True, kw_only=True):
    """`stado-checkpoint.json`, as a job writes it."""

    step: Count | None = None
    """Iterations, epochs of training, whatever the job counts."""
    metric: MetricName | None = None
    value: Finite | None = None
    higher_is_better: bool = True
    files: dict[str, Sha256] = msgspec.field(default_factory=dict)
    """What it speaks of: path in the folder, SHA-256. Where the content is another one, the
    sidecar belongs to another save, and says nothing of this one."""

    @property
    def meta(self) -> CheckpointMeta:
        return CheckpointMeta(
            step=self.step,
            metric=self.metric,
            value=self.value,
            higher_is_better=self.higher_is_better,
        )


def parse_sidecar(data: bytes) -> Sidecar:
    """Raises `Unreadable`, which says what is wrong with it."""
    return parse(Sidecar, NAME, data)
