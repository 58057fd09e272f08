"""The deployment: what makes a folder or bucket a stado store, and how it is read."""

from __future__ import annotations

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import (
    CANCEL_GRACE_SECONDS_DEFAULT,
    FORMAT_VERSION,
    LEASE_SECONDS_DEFAULT,
    Deployment,
    Proof,
)
from stado.errors import Exists, Misconfigured, NotFound, Refused
from stado.ports import Entropy
from stado.storage.port import Store

LEASE_SECONDS_MIN = 1.0
LEASE_SECONDS_MAX = 24 * 3600.0


def check_lease(lease_seconds: float) -> None:
    """Raises `Refused` for a lease that no deployment can have."""
    if not LEASE_SECONDS_MIN <= lease_seconds <= LEASE_SECONDS_MAX:
        raise Refused(
            "lease_invalid",
            f"lease-seconds {lease_seconds:g} is not possible: "
            f"{LEASE_SECONDS_MIN:g} to {LEASE_SECONDS_MAX:g}",
        )


def make_deployment(
    store: Store,
    *,
    entropy: Entropy,
    proof: Proof,
    by: str,
    lease_seconds: float = LEASE_SECONDS_DEFAULT,
    cancel_grace_seconds: float = CANCEL_GRACE_SECONDS_DEFAULT,
) -> tuple[Deployment, bool]:
    """Creates `stado.json`; the deployment, and whether it is new. One that stands stays as it
    is: two who do this at once get the same."""
    check_lease(lease_seconds)
    deployment = Deployment(
        deployment_id=entropy.token(),
        lease_seconds=lease_seconds,
        cancel_grace_seconds=cancel_grace_seconds,
        created_at=store.now(),
        created_by=by,
        proof=proof,
    )
    try:
        store.create(keys.DEPLOYMENT, deployment.encode())
        return deployment, True
    except Exists:
        return read_deployment(store), False


def read_deployment(store: Store) -> Deployment:
    """Raises `Misconfigured` when the store is no stado store, or one of a newer format."""
    try:
        blob = store.get(keys.DEPLOYMENT)
    except NotFound:
        raise Misconfigured(
            "",
            f"{store.address} is not a stado store yet: run `stado init {store.address}` first, "
            "or name another one with --store",
        ) from None
    deployment = decode(Deployment, keys.DEPLOYMENT, blob.data)
    if deployment.format > FORMAT_VERSION:
        raise Misconfigured(
            "",
            f"{store.address} has format {deployment.format} and this stado knows up to "
            f"{FORMAT_VERSION}: upgrade stado",
        )
    return deployment
