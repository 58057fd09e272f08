"""`stado agent install` and `uninstall`, and the same of the coordinator: a program of ours as a
service of systemd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli.options import plain_text
from stado.errors import Refused
from stado.host_options import host_options, worker_options
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.services.files import WantedFile
    from stado.services.installing import Done, Plan
    from stado.services.port import UnitState
    from stado.services.service import Kind, Scope, Service
    from stado.services.unit import Stated

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_LINES = 10
_PROGRAM = ("-P", "-m", "stado.cli.main")
_OPENS_BUCKETS = {
    "s3": ("AWS_",),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_ACCESS_TOKEN"),
}
"""What is taken along of the environment, by the store's kind: beginnings of names."""

_FILES_OF_THE_USER = ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_NAMES_A_FILE = (*_FILES_OF_THE_USER, "GOOGLE_APPLICATION_CREDENTIALS")


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Whose service, and which of several."""
    for option in (
        click.option(
            "--name",
            callback=plain_text,
            metavar="NAME",
            help="Which, where there are several here: a part of the unit's name.",
        ),
        click.option("--system", is_flag=True, help="Of this host: started with it. As root."),
        click.option("--user", is_flag=True, help="Of your own. Default, unless you are root."),
    ):
        command = option(command)
    return command


def _install_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--no-linger", is_flag=True, help="With --user: though it ends at log-out."),
        click.option("--no-start", is_flag=True, help="From the next start of the host on."),
        click.option(
            "--no-env", is_flag=True, help="Take no credentials of the store from this shell."
        ),
        click.option(
            "--env",
            "env_names",
            multiple=True,
            metavar="NAME",
            help="Take this variable of this shell along, too (repeatable), such as PATH.",
        ),
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="GROUP",
            help="With --system: a further group of the account (repeatable).",
        ),
        click.option(
            "--run-as",
            metavar="ACCOUNT",
            help="With --system: who runs it. Default: stado, which is made where it is missing.",
        ),
        click.option(
            "--print", "only_print", is_flag=True, help="Show what would be done, and do nothing."
        ),
    ):
        command = option(command)
    return scope_options(command)


class _Asked(NamedTuple):
    """What was typed of the service itself."""

    user: bool
    system: bool
    name: str | None
    only_print: bool
    run_as: str | None
    groups: tuple[str, ...]
    env_names: tuple[str, ...]
    no_env: bool
    no_start: bool
    no_linger: bool


@click.command("install")
@_install_options
@host_options
@worker_options
@target_options
@click.pass_context
def install_agent(ctx: click.Context, /, *, target: Target, **options: Any) -> int:
    """Let systemd run an agent on this machine, now and after each start.

    With the same words again nothing changes; with others it shows what does, and starts the
    agent anew. Jobs that run go on. `stado agent uninstall` takes it away.

    \b
      stado agent install --store s3://lab-jobs/stado --print
      sudo stado agent install --system --store s3://lab-jobs/stado
    """
    from stado.services.service import Kind

    return _install(Kind.AGENT, ctx, target, options)


@click.command("install")
@_install_options
@click.option(
    "--channels",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STADO_CHANNELS",
    metavar="FILE",
    help="Send notices on the channels that this file (TOML) states.  [none]",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STADO_PRICES",
    metavar="FILE",
    help="Prices (TOML) where no host stated one, for budgets.  [default: those that come with "
    "stado]",
)
@target_options
@click.pass_context
def install_coordinator(ctx: click.Context, /, *, target: Target, **options: Any) -> int:
    """Let systemd run a coordinator on this machine, now and after each start.

    With the same words again nothing changes; with others it shows what does, and starts the
    coordinator anew.

    \b
      stado coordinator install --store s3://lab-jobs/stado --print
      sudo stado coordinator install --system --store s3://lab-jobs/stado
    """
    from stado.services.service import Kind

    return _install(Kind.COORDINATOR, ctx, target, options)


def _install(kind: Kind, ctx: click.Context, target: Target, options: dict[str, Any]) -> int:
    from stado.cli import render
    from stado.cli.context import own_account, service_host, service_manager
    from stado.services import installing
    from stado.services.service import Scope

    asked = _Asked(**{field: options.pop(field) for field in _Asked._fields})
    scope = scope_of(user=asked.user, system=asked.system)
    _check_scope(asked, scope)
    _check_agent_options(options)
    service, variables = _service(kind, scope, asked, target, _words(ctx, options), options)
    manager, host = service_manager(user=scope is Scope.USER), service_host()
    if asked.only_print:
        version = _version_or_newest(manager.version)
        _print(installing.plan(service, variables, host, manager_version=version), asked, variables)
        return 0
    if scope is Scope.SYSTEM and not host.owns_host():
        raise Refused(
            "root_needed",
            "--system writes to /etc and asks systemd of the host: call it as root (`sudo`), or "
            "install it for yourself with --user",
        )
    version = manager.version()
    if scope is Scope.USER and not asked.no_linger:
        installing.check_linger(own_account(), manager)
    plan = installing.plan(service, variables, host, manager_version=version)
    installing.check_program(service, host)
    moved_from = _check_move(plan)
    done = installing.apply(plan, manager, host, start=not asked.no_start)
    _tell(plan, done, variables)
    if moved_from is not None:
        render.tell(f"{moved_from}, its folder until now, stays: `rm -r` removes it")
    return _follow_start(service, done.before) if done.started else 0


def _check_move(plan: Plan) -> Path | None:
    """The folder in which an agent has worked until now, where it is to work in another. Raises
    `Refused` while jobs run there: the agent would not know them."""
    from stado.cli.context import service_host
    from stado.services.unit import read_unit

    unit = plan.unit
    before, after = (
        None if text is None else read_unit(text) for text in (unit.present, unit.text)
    )
    if before is None or after is None or own_folder(before) == own_folder(after):
        return None
    folder = own_folder(before)
    if folder is None:
        return None
    jobs = service_host().running_jobs(folder)
    if jobs:
        raise Refused(
            "jobs_running",
            f"{jobs_run(jobs)} in {folder}, and the agent would work in {own_folder(after)}, "
            f"where it knows nothing of {'it' if len(jobs) == 1 else 'them'}: `stado hosts drain "
            f"{_consumer(before)}`, and again once nothing runs here",
        )
    return folder if folder.is_dir() else None


def scope_of(*, user: bool, system: bool) -> Scope:
    """Raises `UsageError` for both."""
    from stado.cli.context import service_host
    from stado.services.service import Scope

    if user and system:
        raise click.UsageError("--user and --system: a service is of one of the two")
    if user or system:
        return Scope.SYSTEM if system else Scope.USER
    return Scope.SYSTEM if service_host().owns_host() else Scope.USER


def _check_scope(asked: _Asked, scope: Scope) -> None:
    from stado.services.service import Scope

    of_system = {"--run-as": asked.run_as, "--group": asked.groups}
    for option, value in of_system.items():
        if value and scope is Scope.USER:
            raise click.UsageError(f"{option} is for --system: services of a user run as this user")
    if asked.no_linger and scope is Scope.SYSTEM:
        raise click.UsageError("--no-linger is for --user: services of a host need nobody's login")


def _check_agent_options(options: Mapping[str, Any]) -> None:
    """As the agent checks them when it starts, as far as they need no look at the host. Raises
    `Refused`."""
    from stado.core.envelope import check_host_words
    from stado.core.host_secrets import check_secret_options

    check_host_words(
        machine_type=options.get("machine_type"),
        provider=options.get("provider"),
        labels=options.get("label", ()),
    )
    check_secret_options(
        folder=options.get("secrets_dir"),
        service=options.get("secrets_from"),
        endpoint=options.get("secrets_endpoint"),
    )


def _service(
    kind: Kind,
    scope: Scope,
    asked: _Asked,
    target: Target,
    words: tuple[str, ...],
    options: Mapping[str, Any],
) -> tuple[Service, dict[str, str]]:
    """The service, and the variables that it is given."""
    import sys

    from stado.cli.context import host_name, read_settings, service_places
    from stado.services.service import (
        ACCOUNT_DEFAULT,
        Kind,
        Scope,
        Service,
        check_name,
        check_text,
        default_work_dir,
        unit_name,
    )
    from stado.settings import store_of
    from stado.storage.open import check_endpoint

    settings = read_settings(target)
    check_endpoint(settings.endpoint)
    store, scheme = _whole_address(store_of(settings))
    name, places = check_name(asked.name), service_places(scope)
    consumer, work_dir = options.get("consumer_id"), options.get("work_dir")
    if kind is Kind.AGENT:
        if consumer is None and name is not None:
            consumer = f"local@{host_name()}-{name}"
        made = default_work_dir(scope, places, unit_name(kind, name))
        work_dir = made if work_dir is None else str(work_dir.absolute())
    for option, text in (
        ("--store", store),
        ("--endpoint", settings.endpoint or ""),
        ("--region", settings.region or ""),
        ("--consumer-id", consumer or ""),
        ("--work-dir", work_dir or ""),
        ("--run-as", asked.run_as or ""),
        *(("--group", group) for group in asked.groups),
        *_told(words),
    ):
        check_text(option, text)
    service = Service(
        kind=kind,
        scope=scope,
        places=places,
        name=name,
        program=(sys.executable, *_PROGRAM),
        options=words,
        store=store,
        endpoint=settings.endpoint,
        region=settings.region,
        account=(asked.run_as or ACCOUNT_DEFAULT) if scope is Scope.SYSTEM else None,
        groups=asked.groups,
        consumer=consumer,
        work_dir=work_dir,
    )
    return service, _variables(asked, scheme)


def _told(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        yield word.partition("=")[0], word


def _whole_address(store: str) -> tuple[str, str]:
    """The store as it is called from any folder, and its kind. Raises `Misconfigured`."""
    from stado.storage.open import Scheme, parse_address

    address = parse_address(store)
    if address.scheme is Scheme.FILE:
        return str(address.path.absolute()), str(address.scheme)
    return store, str(address.scheme)


def _variables(asked: _Asked, scheme: str) -> dict[str, str]:
    """Raises `Refused` for one that was named and is not set."""
    from stado.cli.context import given_variables

    beginnings = () if asked.no_env else _OPENS_BUCKETS.get(scheme, ())
    found = given_variables(lambda name: name.startswith(beginnings) or name in asked.env_names)
    for name in asked.env_names:
        if name not in found:
            raise Refused("variable_missing", f"--env {name}: this shell exports no such variable")
    return found


def _words(ctx: click.Context, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The options of the program that somebody stated, as they are typed."""
    from click.core import ParameterSource

    return tuple(
        f"--{name.replace('_', '-')}" + ("" if one is True else f"={_whole(one)}")
        for name, value in options.items()
        if name not in ("consumer_id", "work_dir")
        and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        for one in (value if isinstance(value, tuple) else (value,))
        if one is not None and one is not False
    )


def _whole(value: object) -> str:
    """A path counts from any folder."""
    return str(value.absolute() if isinstance(value, Path) else value)


def _version_or_newest(ask: Callable[[], int]) -> int:
    from stado.cli.render import tell
    from stado.services.installing import NEWEST_KNOWN

    try:
        return ask()
    except Refused as error:
        tell(f"(written for systemd {NEWEST_KNOWN}: {error.text.partition(': ')[0]})")
        return NEWEST_KNOWN


# --- what is shown --------------------------------------------------------------------------


def _print(plan: Plan, asked: _Asked, variables: Mapping[str, str]) -> None:
    from stado.cli import render
    from stado.cli.context import service_host

    for file in plan.files:
        same = "" if file.differs else ", as it is there already"
        render.print_line(f"# {file.path} (mode {file.mode:04o}{same})")
        for line in file.shown().splitlines():
            render.print_line(line)
        render.print_line()
    _warn_of_tokens(variables)
    render.print_line("# called then")
    for command in plan.commands(service_host(), start=not asked.no_start):
        render.print_line(command)
    _tell_unchecked(plan)


def _tell_unchecked(plan: Plan) -> None:
    """What nobody has looked at yet: a file that was printed is no promise."""
    from stado.cli import render
    from stado.services.service import Kind, Scope

    service = plan.service
    who = "this user" if service.account is None else f"the account {service.account}"
    linger = " and may run services without a login" if service.scope is Scope.USER else ""
    render.tell(
        f"nothing was done. Still to be checked, when it is installed: that {who} can run "
        f"{service.program[0]}{linger}"
    )
    host = ", what --work-dir, --docker and the like name" if service.kind is Kind.AGENT else ""
    render.tell(f"and by the {service.kind} when it starts: the store{host}")


def _tell(plan: Plan, done: Done, variables: Mapping[str, str]) -> None:
    from stado.cli import render

    unit = plan.service.unit
    if plan.account is not None:
        render.print_line(f"made the account {plan.account}")
    for file in done.files:
        render.print_line(f"{'wrote' if file.present is None else 'changed'} {file.path}")
        for line in file.changes():
            render.print_line(f"  {line}")
    if done.narrowed:
        render.tell(f"{plan.service.environment_path} could be read by others; now it cannot")
    if not done.anything:
        render.print_line(f"nothing to change: {unit} is installed as asked")
        return
    if done.caught_up:
        render.print_line(f"{unit} had not taken up yet what was written before")
    _tell_variables(plan.files, variables)
    if done.enabled:
        render.print_line(f"enabled {unit}: it is started with the host")


def _tell_variables(files: Sequence[WantedFile], variables: Mapping[str, str]) -> None:
    """By name: what the service is started with, and what may not be readable for it."""
    from stado.cli import render

    for file in files:
        if not file.secret:
            continue
        names = ", ".join(file.variables())
        what = f"the service is started with {names}" if names else "it states no variable"
        render.tell(f"{file.path}: {what}")
    for name in sorted(set(variables) & set(_NAMES_A_FILE)):
        render.tell(f"{name} leads to a file: see to it that the service can read that one, too")
    _warn_of_tokens(variables)


def _warn_of_tokens(variables: Mapping[str, str]) -> None:
    from stado.cli import render
    from stado.services.environment_file import ENDS_BY_ITSELF

    for name in sorted(set(variables) & set(ENDS_BY_ITSELF)):
        render.tell(
            f"{name} of this shell ends by itself, mostly within hours, and with it what the "
            "service may do: give it keys that last, or with --no-env the role of its machine"
        )


def _follow_start(service: Service, before: UnitState) -> int:
    """Until it works, waits for its store, or has failed; 1 when it has. `before`: what was said
    of it when it was to start; what is said of that process still is no answer."""
    from stado.cli import render
    from stado.cli.context import live_machine, service_manager
    from stado.services.service import Scope

    manager = service_manager(user=service.scope is Scope.USER)
    clock = live_machine().clock
    end = clock.monotonic() + _START_SECONDS
    while True:
        state = manager.state(service.unit)
        new = (state.invocation, state.main_pid) != (before.invocation, before.main_pid)
        if state.invocation and state.invocation == before.invocation:
            new = False
        if new and state.active == "active":
            render.print_line(f"{service.unit} runs (process {state.main_pid})")
            return 0
        again = state.restarts > 0 and state.restarts != before.restarts
        failed = new and (state.active == "failed" or again or state.sub == "auto-restart")
        if failed or clock.monotonic() >= end:
            break
        clock.sleep(_LOOK_SECONDS)
    for line in manager.last_lines(service.unit, _LINES):
        render.tell(f"  {line}")
    scope = " --user" if service.scope is Scope.USER else ""
    if not failed:
        said = state.status_text or "it has not said anything"
        render.tell(f"{service.unit} is not at work yet ({said}); systemd goes on trying")
        return 1
    render.tell(
        f"stado: {service.unit} does not start (exit code {state.exit_status}): the lines above "
        f"say why; systemd goes on trying until `systemctl{scope} stop {service.unit}`"
    )
    return 1


# --- uninstall ------------------------------------------------------------------------------


_purge_option = click.option(
    "--purge", is_flag=True, help="Remove its variables and its own folder, too."
)


@click.command("uninstall")
@scope_options
@_purge_option
@click.option("--leave-jobs", is_flag=True, help="Though jobs run here: they go on.")
def uninstall_agent(**options: Any) -> None:
    """Stop an agent that was installed, and remove its unit.

    Jobs are never ended by this. While some run here it is refused, unless --leave-jobs says that
    they shall go on without an agent: `stado hosts drain` first lets none begin.
    """
    from stado.services.service import Kind

    _uninstall(Kind.AGENT, **options)


@click.command("uninstall")
@scope_options
@_purge_option
def uninstall_coordinator(**options: Any) -> None:
    """Stop a coordinator that was installed, and remove its unit. Jobs go on."""
    from stado.services.service import Kind

    _uninstall(Kind.COORDINATOR, leave_jobs=False, **options)


class Installed(NamedTuple):
    """A unit of ours that is there."""

    scope: Scope
    unit: str
    path: Path
    stated: Stated


def find_installed(kind: Kind, *, user: bool, system: bool, name: str | None) -> Installed:
    """Where neither scope is named, the one that has it; where both have, one's own, or root's that
    of the host. Raises `Refused`."""
    from stado.cli.context import service_host, service_places
    from stado.services.service import Scope, check_name, unit_name
    from stado.services.unit import read_unit

    if user and system:
        raise click.UsageError("--user and --system: a service is of one of the two")
    unit = unit_name(kind, check_name(name))
    scopes = [Scope.USER] if user else [Scope.SYSTEM] if system else [Scope.SYSTEM, Scope.USER]
    found = []
    for scope in scopes:
        path = Path(service_places(scope).units / unit)
        text = service_host().find_text(path)
        stated = None if text is None else read_unit(text)
        if stated is not None:
            found.append(Installed(scope, unit, path, stated))
        elif text is not None:
            raise Refused("unit_foreign", f"{path} was not written by stado: systemctl tells of it")
    if not found:
        where = " and ".join(str(service_places(scope).units) for scope in scopes)
        raise Refused(
            "not_installed",
            f"there is no {unit} in {where}: `stado {kind} install` makes one"
            + ("" if name else "; one with a name of its own is found with --name"),
        )
    own = scope_of(user=False, system=False)
    return next((one for one in found if one.scope is own), found[0])


def own_folder(stated: Stated) -> Path | None:
    """An agent's, in its work folder, which other agents may share: `HostFolder` names it so."""
    from stado.core import keys

    if stated.work_dir is None:
        return None
    return Path(stated.work_dir) / keys.component(_consumer(stated))


def _consumer(stated: Stated) -> str:
    from stado.cli.context import host_name

    return stated.consumer or f"local@{host_name()}"


def _uninstall(
    kind: Kind, *, user: bool, system: bool, name: str | None, purge: bool, leave_jobs: bool
) -> None:
    from stado.cli import render
    from stado.cli.context import service_host, service_manager
    from stado.services import installing
    from stado.services.service import Scope

    one, there = _to_remove(kind, user=user, system=system, name=name, purge=purge)
    host, manager = service_host(), service_manager(user=one.scope is Scope.USER)
    if one.scope is Scope.SYSTEM and not host.owns_host():
        raise Refused("root_needed", f"{one.unit} is of the host: call this as root (`sudo`)")
    folder, variables = own_folder(one.stated), one.stated.environment_file
    jobs = [] if folder is None else host.running_jobs(folder)
    _check_jobs(one, jobs, purge=purge, leave_jobs=leave_jobs)
    if there:
        manager.stop(one.unit)
    # It has begun none since: what it began before it was stopped counts.
    jobs = [] if folder is None else host.running_jobs(folder)
    if purge and folder is not None:
        _check_purge(one, folder, jobs, stopped=there)
    if there and installing.remove_unit(one.unit, one.path, manager, host):
        render.print_line(f"removed {one.path}")
    left = installing.what_stays(variables, None if folder is None else str(folder), host)
    if not purge:
        _tell_left(kind, one, left, jobs)
    else:
        for path in left:
            render.tell(f"--purge removes {path}")
        for path in installing.purge(variables, None if folder is None else str(folder), host):
            render.print_line(f"removed {path}")
    render.tell(f"{one.unit} is gone; an account that was made for it stays")


def _to_remove(
    kind: Kind, *, user: bool, system: bool, name: str | None, purge: bool
) -> tuple[Installed, bool]:
    """And whether its unit is there: what an earlier call has left can be purged without it, as
    far as it is where it is by default. Raises `Refused`."""
    from stado.cli.context import service_host
    from stado.services.installing import what_stays

    try:
        return find_installed(kind, user=user, system=system, name=name), True
    except Refused as error:
        if not purge or error.code != "not_installed":
            raise
        one = _by_default(kind, scope_of(user=user, system=system), name)
        folder = own_folder(one.stated)
        stays = what_stays(
            one.stated.environment_file, None if folder is None else str(folder), service_host()
        )
        if not stays:
            raise
        return one, False


def _by_default(kind: Kind, scope: Scope, name: str | None) -> Installed:
    """What a service is called, and where its files are, unless it was told otherwise."""
    from stado.cli.context import host_name, service_places
    from stado.services.service import Kind, default_work_dir, environment_path, unit_name
    from stado.services.unit import Stated

    places, unit = service_places(scope), unit_name(kind, name)
    of_agent = kind is Kind.AGENT
    stated = Stated(
        kind=kind.value,
        store="",
        consumer=f"local@{host_name()}-{name}" if of_agent and name is not None else None,
        work_dir=default_work_dir(scope, places, unit) if of_agent else None,
        endpoint=None,
        region=None,
        environment_file=str(environment_path(places, unit)),
    )
    return Installed(scope, unit, Path(places.units / unit), stated)


def _check_jobs(one: Installed, jobs: Sequence[str], *, purge: bool, leave_jobs: bool) -> None:
    if not jobs:
        return
    agent = _consumer(one.stated)
    they_go = "it goes" if len(jobs) == 1 else "they go"
    if purge:
        raise Refused(
            "jobs_running",
            f"{jobs_run(jobs)} in {own_folder(one.stated)}, which --purge would remove: "
            f"`stado hosts drain {agent}`, and again once nothing runs here",
        )
    if not leave_jobs:
        raise Refused(
            "jobs_running",
            f"{jobs_run(jobs)} here: `stado hosts drain {agent}`, and again once nothing does; "
            f"with --leave-jobs {they_go} on without an agent",
        )


def jobs_run(jobs: Sequence[str]) -> str:
    from stado.cli.render import plural

    named = ", ".join(jobs[:3]) + (", …" if len(jobs) > 3 else "")
    return f"{plural(len(jobs), 'job')} ({named}) {'runs' if len(jobs) == 1 else 'run'}"


def _check_purge(one: Installed, folder: Path, jobs: Sequence[str], *, stopped: bool) -> None:
    """Raises `Refused` for a folder that is still worked in."""
    from stado.cli.context import service_host
    from stado.services.service import Scope

    scope = " --user" if one.scope is Scope.USER else ""
    was = f"; {one.unit} is stopped, `systemctl{scope} start {one.unit}` lets it work on"
    if jobs:
        raise Refused(
            "jobs_running",
            f"{jobs_run(jobs)} in {folder}, which --purge would remove: call it again once "
            f"nothing runs here{was if stopped else ''}",
        )
    if service_host().agent_works_in(folder):
        raise Refused(
            "agent_running",
            f"an agent works in {folder}, which --purge would remove: it was started by something "
            f"else than {one.unit}; stop it first",
        )


def _tell_left(kind: Kind, one: Installed, left: Sequence[str], jobs: Sequence[str]) -> None:
    """What stays, and how it goes: another call finds only what is where it is by default."""
    from stado.cli import render

    for path in left:
        render.print_line(f"left {path}")
    if jobs:
        on = "goes on to its end" if len(jobs) == 1 else "go on to their ends"
        render.tell(f"{render.plural(len(jobs), 'job')} {on}: {', '.join(jobs)}")
    name = one.unit.removeprefix(f"stado-{kind}").removesuffix(".service").removeprefix("-")
    default = _by_default(kind, one.scope, name or None).stated
    found = {default.environment_file, str(own_folder(default))}
    if found & set(left):
        named = f" --name {name}" if name else ""
        render.tell(f"`stado {kind} uninstall --{one.scope}{named} --purge` removes what is left")
    for path in left:
        if path not in found:
            render.tell(f"`rm -r {path}` removes what is left there")
