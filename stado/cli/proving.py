"""Whether a store honours the conditions that the queue rests on, asked of the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stado.core import keys
from stado.core.records import Proof
from stado.errors import Misconfigured
from stado.storage import contract

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.storage.port import Store


def prove(store: Store, machine: Machine) -> contract.Proof:
    """Some seconds. Raises what keeps the store from answering at all.

    Through the retries: a real store answers a race with "try again", which is no verdict."""
    return contract.prove(store, machine.tasks, machine.entropy, keys.PROOF)


def proved(store: Store, machine: Machine) -> Proof:
    """What a deployment records. Raises `Misconfigured` for a store that no job is safe in."""
    proof = prove(store, machine)
    if not proof.accepted:
        raise Misconfigured("", f"{store.address} is refused: {proof.text}")
    return Proof(
        create_if_absent=True,
        compare_and_swap=True,
        conditional_delete=proof.conditional_delete,
    )
