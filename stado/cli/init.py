"""`stado init`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from stado.cli.context import (
    is_set,
    json_option,
    live_machine,
    opened_store,
    read_settings,
    user_name,
)
from stado.cli.options import plain_text
from stado.target import Target, folder_names, target_options

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.core.records import Deployment
    from stado.settings import Settings
    from stado.storage.port import Store

_NAMES_SHOWN = 3


@click.command()
@click.argument("address", metavar="[STORE]", required=False, shell_complete=folder_names)
@click.option(
    "--lease-seconds",
    type=float,
    help="How long a worker may be silent before its jobs are queued again.  [default: 120]",
)
@click.option(
    "--among-other-files",
    is_flag=True,
    help="Accept a folder or prefix that holds something else already.",
)
@click.option(
    "--add-context",
    metavar="NAME",
    callback=plain_text,
    help="Give the store a name in the config file, and make it the current one.",
)
@json_option
@target_options
def init(
    *,
    address: str | None,
    lease_seconds: float | None,
    among_other_files: bool,
    add_context: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Make STORE a stado store: a directory (made if need be), s3://bucket/prefix or
    gs://bucket/prefix.

    Proves first that the store honours the conditions of writes that the queue rests on. A store
    that is one already stays as it is. Prints the line for your shell that names it, unless a
    context does:

    \b
      eval "$(stado init ./queue)"
      stado init s3://lab-jobs/stado --add-context lab
    """
    from stado.jobs.deployments import check_lease

    if lease_seconds is not None:
        check_lease(lease_seconds)
    if address is not None and target.store not in (None, address):
        raise click.UsageError("STORE and --store name two stores: state one of them.")
    settings = read_settings(target if address is None else target._replace(store=address))
    if add_context is not None:
        _check_context(add_context, settings)
    user = user_name()
    machine = live_machine()
    if not among_other_files:
        _check_room(settings, machine)
    with opened_store(settings, machine, create=True) as store:
        deployment, created = _make(store, machine, lease_seconds=lease_seconds, user=user)
        named = replace(settings, store=store.address)
    if add_context is not None:
        _add_context(add_context, settings)
    _answer(named, deployment, created=created, context=add_context, as_json=as_json)


def _check_room(settings: Settings, machine: Machine) -> None:
    """Raises `Refused` where there is something, and no stado store. Makes nothing."""
    from stado.core import keys
    from stado.errors import Refused
    from stado.settings import store_of
    from stado.storage.open import Scheme, first_names, parse_address

    address = store_of(settings)
    names = first_names(
        address,
        endpoint=settings.endpoint,
        region=settings.region,
        clock=machine.clock,
        tasks=machine.tasks,
    )
    left_by_proof = keys.PROOF.partition("/")[0] + "/"
    others = [name for name in names if name != left_by_proof]
    if not others or keys.DEPLOYMENT in names:
        return
    if parse_address(address).scheme is not Scheme.FILE and _is_deployment(settings, machine):
        return
    place = address.rstrip("/")
    raise Refused(
        "store_not_empty",
        f"{place} is no stado store, and holds something else: {_listed(others)}. Name a place of "
        f"its own, such as {place}/stado, or give --among-other-files",
    )


def _is_deployment(settings: Settings, machine: Machine) -> bool:
    with opened_store(settings, machine) as store:
        return _find_deployment(store) is not None


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _check_context(name: str, settings: Settings) -> None:
    """Before anything is made."""
    from stado.cli.context import read_config_file
    from stado.cli.contexts import check_free

    check_free(read_config_file(), name, _for_context(settings))


def _add_context(name: str, settings: Settings) -> None:
    from stado.cli.contexts import add_context

    add_context(name, _for_context(settings), use=True, replace=False)


def _for_context(settings: Settings) -> Settings:
    from stado.cli.config import checked_store
    from stado.settings import store_of

    address = checked_store(store_of(settings), settings.endpoint)
    return replace(settings, store=address, context=None)


def _make(
    store: Store, machine: Machine, *, lease_seconds: float | None, user: str
) -> tuple[Deployment, bool]:
    from stado.cli.proving import proved
    from stado.core.records import LEASE_SECONDS_DEFAULT
    from stado.jobs.deployments import make_deployment

    standing = _find_deployment(store)
    if standing is None:
        if lease_seconds is None:
            lease_seconds = LEASE_SECONDS_DEFAULT
        deployment, created = make_deployment(
            store,
            entropy=machine.entropy,
            proof=proved(store, machine),
            lease_seconds=lease_seconds,
            by=user,
        )
    else:
        deployment, created = standing, False
    if not created and lease_seconds not in (None, deployment.lease_seconds):
        _refuse_lease(store, deployment, lease_seconds)
    return deployment, created


def _refuse_lease(store: Store, deployment: Deployment, lease_seconds: float | None) -> None:
    from stado.errors import Refused

    raise Refused(
        "lease_differs",
        f"{store.address} is a stado store already, with a lease of "
        f"{deployment.lease_seconds:g} s, and stays so: leave out --lease-seconds "
        f"{lease_seconds:g}, or name another store",
    )


def _find_deployment(store: Store) -> Deployment | None:
    from stado.core import keys
    from stado.errors import NotFound
    from stado.jobs.deployments import read_deployment

    try:
        store.head(keys.DEPLOYMENT)
    except NotFound:
        return None
    return read_deployment(store)


def _answer(
    settings: Settings,
    deployment: Deployment,
    *,
    created: bool,
    context: str | None,
    as_json: bool,
) -> None:
    from stado.cli import render

    if as_json:
        render.print_json(
            {
                "store": settings.store,
                "created": created,
                "deployment_id": deployment.deployment_id,
                "lease_seconds": deployment.lease_seconds,
                "proof": deployment.proof.plain(),
                "context": context,
            }
        )
        return
    kind = "a new stado store" if created else "a stado store already"
    render.tell(f"{settings.store} is {kind} (lease {deployment.lease_seconds:g} s)")
    if not deployment.proof.conditional_delete:
        render.tell("it does not honour delete by version: jobs are safe, tidying may be late")
    if context is None:
        render.tell("next: name it to your shell, start a worker, submit")
        _print_exports(settings)
    else:
        _tell_context(context)
    render.tell("stado up                                       # on the machine that shall work")
    render.tell("stado submit --run-id first 'echo hello'")


def _print_exports(settings: Settings) -> None:
    """A variable that belongs to another store must not stay beside the new address."""
    from stado.cli import render

    for name, value in settings.environment().items():
        if value or is_set(name):
            render.print_line(f"export {name}={shlex.quote(value)}")


def _tell_context(name: str) -> None:
    from stado.cli import render
    from stado.cli.config import tell_unless_it_counts

    render.tell(f"{name} names it, and is the current context")
    tell_unless_it_counts("context", name)
    render.tell("next: start a worker, submit")
