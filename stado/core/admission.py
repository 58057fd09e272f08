"""May this job start here, now? One pure predicate, used by whoever has to know."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stado.core.order import Needs


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not: `code` for machines, `text` for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host has left to give."""

    cpu_milli: int
    memory_mib: int
    images: bool = False
    """Whether it can run commands in container images."""

    def less(self, needs: Needs) -> Offer:
        """What is left after a job with these needs was let in."""
        return replace(
            self,
            cpu_milli=self.cpu_milli - needs.cpu_milli,
            memory_mib=self.memory_mib - needs.memory_mib,
        )

    @property
    def spent(self) -> bool:
        """Whether no job at all can be let in."""
        return self.cpu_milli <= 0 or self.memory_mib <= 0


def admit(needs: Needs, offer: Offer, *, now_ms: int) -> Refusal | None:
    """None when the job may start; `now_ms` is milliseconds on the store's clock."""
    if needs.deadline_ms is not None and now_ms >= needs.deadline_ms:
        return Refusal(
            "deadline_passed",
            "its deadline has passed: a coordinator, or a worker that looks, ends it",
        )
    if needs.image and not offer.images:
        return Refusal(
            "no_eligible_worker", "runs in an image, and no container engine answers there"
        )
    if needs.cpu_milli > offer.cpu_milli:
        return Refusal(
            "waiting_capacity",
            f"needs {needs.cpu_milli / 1000:g} cores, {max(0, offer.cpu_milli) / 1000:g} are free",
        )
    if needs.memory_mib > offer.memory_mib:
        return Refusal(
            "waiting_capacity",
            f"needs {needs.memory_mib / 1024:g} GiB of memory, "
            f"{max(0, offer.memory_mib) / 1024:g} are free",
        )
    return None
