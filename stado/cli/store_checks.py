"""Checks of the store itself: its answers, its clock, the conditions that it honours, what its
bucket does by itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from stado.cli.findings import Finding

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.settings import Settings
    from stado.storage.bucket_rules import BucketRules
    from stado.storage.port import Store
    from stado.storage.trouble import StoreTrouble

SKEW_SECONDS_MAX = 60.0
THROTTLING_REMEDY = (
    "nothing is lost, work is slower: a bucket's limits grow within an hour of steady use; else "
    "ask its provider for more, or let fewer agents work"
)


def store_findings(store: Store, machine: Machine, *, proving: bool) -> Iterator[Finding]:
    """`proving`: by writes below `control/proof/`, which only operators may; else by what `init`
    has proved."""
    from stado.cli.proving import prove
    from stado.jobs.deployments import read_deployment

    deployment = read_deployment(store)
    yield Finding(
        "store",
        "store_answers",
        f"{store.address} answers (lease {deployment.lease_seconds:g} s)",
    )
    yield clock_finding(machine.clock.now(), store.now())
    if not proving:
        told = deployment.proof
        yield Finding(
            "conditions",
            "conditions_proved_before",
            "the store honoured its conditions when it was made"
            + ("" if told.conditional_delete else ", but for the one of a delete"),
        )
        return
    proof = prove(store, machine)
    remedy = None if proof.accepted else "move to a store that honours them: jobs may run twice"
    code = "conditions_honoured" if proof.accepted else "conditions_ignored"
    yield Finding("conditions", code, proof.text, remedy)


def store_remedy(error: Exception) -> str:
    """What helps against what keeps the store from being looked at."""
    from stado.errors import Denied, Misconfigured

    if isinstance(error, Denied):
        return "check the credentials and what they allow"
    if isinstance(error, Misconfigured):
        return "`stado config list` shows what names it; --store names another"
    return "check the network and the server, then run this again"


def clock_finding(here: datetime, store: datetime) -> Finding:
    ahead_seconds = (here - store).total_seconds()
    if abs(ahead_seconds) <= SKEW_SECONDS_MAX:
        return Finding("clock", "clock_agrees", "this machine's clock agrees with the store's")
    return skew_finding("this machine's clock", ahead_seconds)


def skew_finding(whose: str, ahead_seconds: float) -> Finding:
    """Nothing is decided by such a clock, but people read it, and signatures expire."""
    from stado.cli.render import duration

    side = "ahead of" if ahead_seconds > 0 else "behind"
    return Finding(
        "clock",
        "clock_off",
        f"{whose} is {duration(abs(ahead_seconds))} {side} the store's",
        "set it, such as with `timedatectl set-ntp true`: no job is judged by it, but a bucket "
        "refuses credentials of another time",
    )


def own_throttling(trouble: StoreTrouble) -> Iterator[Finding]:
    from stado.cli.render import plural

    put_off = trouble.take_throttled()
    if put_off:
        text = f"the store put off {plural(put_off, 'request')} of this check-up"
        yield Finding("throttling", "throttled", text, THROTTLING_REMEDY)


def bucket_findings(settings: Settings, machine: Machine) -> Iterator[Finding]:
    """Nothing of a directory, which does nothing by itself."""
    from stado.settings import store_of
    from stado.storage.open import bucket_rules

    rules = bucket_rules(
        store_of(settings),
        endpoint=settings.endpoint,
        region=settings.region,
        clock=machine.clock,
        tasks=machine.tasks,
    )
    if rules is not None:
        yield from rules_findings(rules)


def rules_findings(rules: BucketRules) -> Iterator[Finding]:
    """Rules that would end what jobs left, or the records that the queue rests on."""
    reaching = rules.reaching
    for rule in reaching:
        name = f" {rule.name}" if rule.name else ""
        below = f" below {rule.prefix}" if rule.prefix else ""
        yield Finding(
            "bucket",
            "lifecycle_reaches_store",
            f"lifecycle rule{name} of the bucket {rule.effect}{below}, where the store is",
            "take the store out of it: a record that vanishes is a job that is lost, and results "
            "go with it; `stado job delete` deletes what is not needed",
        )
    if rules.retention_seconds:
        yield Finding(
            "bucket",
            "retention_policy",
            f"the bucket lets nobody replace or delete an object for {rules.retention_seconds:,} s",
            "use a bucket without a retention policy: heartbeats and records are replaced all the "
            "time",
        )
    untold = dict(rules.untold)
    for what, why in untold.items():
        yield Finding(
            "bucket",
            "bucket_not_told",
            f"the {what} of the bucket could not be looked at: {why}",
            unknown=True,
        )
    if "lifecycle rules" not in untold and not reaching:
        yield Finding("bucket", "lifecycle_clear", "no lifecycle rule of the bucket ends objects")
    if rules.keeps_versions and "lifecycle rules" not in untold and not rules.drops_versions:
        yield Finding(
            "bucket",
            "versions_kept",
            "the bucket keeps old versions for ever, of each heartbeat too: a rule that ends old "
            "versions after some days saves room",
        )
