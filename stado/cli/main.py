"""`stado`: the commands, each loaded when it is called.

Nothing heavy may be imported here: `stado --help` reads the tables below and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli import exits
from stado.cli.failures import PipeClosed, guarded

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """A command by name: where it is, and what the list of commands says of it."""

    module: str
    attribute: str
    short_help: str


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(
        self,
        *,
        lazy: Mapping[str, LazyCommand | click.Command],
        sections: Mapping[str, Sequence[str]] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        """`sections`: names of commands by the title under which help has them. Others stand behind
        them, under one title."""
        super().__init__(no_args_is_help=False, **options)
        self._lazy = lazy
        self._sections = sections

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(exits.REFUSED)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self._lazy.get(cmd_name)
        if isinstance(entry, LazyCommand):
            command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
            return command
        return entry

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: completing imports no command."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=_short_help(entry))
            for name, entry in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, self._lazy))
        told = {name for names in self._sections.values() for name in names}
        others = [name for name in self._lazy if name not in told]
        for title, names in {**self._sections, "Commands": others}.items():
            rows = [(name.ljust(width), _short_help(self._lazy[name])) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed = not ctx.resilient_parsing and not args[0].startswith("-")
        if typed and args[0] not in self._lazy:
            raise self._unknown(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> click.UsageError:
        from difflib import get_close_matches

        meant = self._synonym(ctx, name)
        close = [repr(match) for match in get_close_matches(name, self._lazy, n=3)]
        if meant is not None:
            close = [f"`{meant}`"]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        return click.UsageError(f"there is no command {name!r}{hint}", ctx)

    def _synonym(self, ctx: click.Context, name: str) -> str | None:
        """What somebody means by a word that is none of our commands."""
        from stado.cli.synonyms import meant_by

        return meant_by(ctx.command_path.partition(" ")[2], name)


class DefaultGroup(LazyGroup):
    """A group that shows something where no command is named: what follows it is then an argument
    of its first command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if not ctx.resilient_parsing and not asks_for_help and not set(args[:1]) & set(self._lazy):
            if args and self._synonym(ctx, args[0]) is not None:
                raise self._unknown(ctx, args[0])
            args = [next(iter(self._lazy)), *args]
        return super().parse_args(ctx, args)


def _short_help(entry: LazyCommand | click.Command) -> str:
    if isinstance(entry, LazyCommand):
        return entry.short_help
    first, *_ = (entry.help or "").split("\n\n")  # Behind it are examples.
    return " ".join(first.split())


class Program(LazyGroup):
    """The whole command line: what goes wrong in it becomes a sentence and an exit code."""

    def main(  # type: ignore[override]  # one way of running: it always exits
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> None:
        extra.pop("standalone_mode", None)

        def call() -> object:
            return super(Program, self).main(
                args, prog_name or "stado", standalone_mode=False, **extra
            )

        sys.exit(guarded(call))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise PipeClosed from None


_JOB = LazyGroup(
    name="job",
    help="Look at one job, follow it, pause it, run it again.",
    lazy={
        "ls": LazyCommand("stado.cli.jobs", "jobs", "List your jobs: the same as `stado jobs`."),
        "show": LazyCommand("stado.cli.job", "show", "Tell a job's whole story."),
        "status": LazyCommand("stado.cli.job", "show", "The same as `stado job show`."),
        "why": LazyCommand("stado.cli.why", "why", "Say why a job waits, or what it is doing."),
        "watch": LazyCommand("stado.cli.job", "watch", "Print a job's log; follow it to its end."),
        "logs": LazyCommand("stado.cli.logs", "job_logs", "Follow a job's log to its end."),
        "pause": LazyCommand("stado.cli.reopening", "pause", "Stop a job for a while, saved."),
        "resume": LazyCommand("stado.cli.reopening", "resume", "Let a paused job go on."),
        "retry": LazyCommand("stado.cli.reopening", "retry", "Queue a job that ended again."),
        "set-priority": LazyCommand(
            "stado.cli.priority", "set_priority", "Give a queued job another priority."
        ),
        "delete": LazyCommand("stado.cli.deleting", "delete", "Delete a job and what it left."),
        "rerun": LazyCommand("stado.cli.job", "rerun", "Submit a job's exact spec again."),
    },
)

_ARTIFACT = LazyGroup(
    name="artifact",
    help="Give what jobs leave a name and a version.",
    lazy={
        "publish": LazyCommand("stado.cli.artifacts", "publish", "Publish what a job left."),
        "list": LazyCommand("stado.cli.artifacts", "list_artifacts", "List what is published."),
        "show": LazyCommand("stado.cli.artifacts", "show", "Tell what an artifact holds."),
        "verify": LazyCommand("stado.cli.artifacts", "verify", "Compare every file's digest."),
    },
)

_POLICY = LazyGroup(
    name="policy",
    help="List what train jobs left; download it.",
    lazy={
        "list": LazyCommand("stado.cli.policy", "list_policies", "List the newest policies."),
        "get": LazyCommand("stado.cli.policy", "get", "Download a checkpoint of a policy."),
        "export": LazyCommand("stado.cli.policy", "export", "Write one with a manifest."),
    },
)

_PIPELINE = LazyGroup(
    name="pipeline",
    help="Look at a job and the steps that follow it.",
    lazy={"show": LazyCommand("stado.cli.pipeline", "show", "Tell what has become of it.")},
)

_SCHEDULE = LazyGroup(
    name="schedule",
    help="Submit jobs again and again, by the clock.",
    lazy={
        "create": LazyCommand(
            "stado.cli.schedule_creation", "create", "Submit a command by the clock."
        ),
        "list": LazyCommand("stado.cli.schedule", "list_schedules", "List the schedules."),
        "show": LazyCommand("stado.cli.schedule", "show", "Tell all about a schedule."),
        "next": LazyCommand("stado.cli.schedule", "coming", "Show when it is due next."),
        "history": LazyCommand("stado.cli.schedule", "history", "List what it has submitted."),
        "run": LazyCommand("stado.cli.schedule", "run", "Submit once now."),
        "pause": LazyCommand("stado.cli.schedule", "pause", "Submit nothing for a while."),
        "resume": LazyCommand("stado.cli.schedule", "resume", "Let it go on, from now."),
        "rm": LazyCommand("stado.cli.schedule", "remove", "Remove it; its jobs stay."),
    },
)

_QUEUE = LazyGroup(
    name="queue",
    help="Pause the queue, drain it, and let it go on.",
    lazy={
        "pause": LazyCommand("stado.cli.queue", "pause", "Let no job start until it is resumed."),
        "drain": LazyCommand("stado.cli.queue", "drain", "Pause it, and wait until nothing runs."),
        "resume": LazyCommand("stado.cli.queue", "resume", "Let jobs start again."),
    },
)

_HOSTS = DefaultGroup(
    name="hosts",
    help="List the agents, or show one: what it has free, and why it takes no jobs.\n\n"
    "\b\n  stado hosts\n  stado hosts local@lab-7\n  stado hosts drain local@lab-7 --reason update",
    epilog="`stado hosts show --help` has the options of what is shown.",
    lazy={
        "show": LazyCommand("stado.cli.hosts", "show", "List the agents; the same without it."),
        "cordon": LazyCommand("stado.cli.hosts", "cordon", "Let a host take no more jobs."),
        "drain": LazyCommand("stado.cli.hosts", "drain", "The same, until nothing runs there."),
        "uncordon": LazyCommand("stado.cli.hosts", "uncordon", "Let it take jobs again."),
        "release": LazyCommand("stado.cli.hosts", "release", "Lift a host's quarantine."),
        "label": LazyCommand("stado.cli.hosts", "label", "Say what a host is, for jobs to ask."),
        "set": LazyCommand("stado.cli.hosts", "set_", "Say what a host costs an hour."),
        "rm": LazyCommand("stado.cli.hosts", "remove", "Forget a host that is gone for good."),
    },
)

_PROFILES = DefaultGroup(
    name="profiles",
    help="List the submit profiles, show one, check files.\n\n"
    "\b\n  stado profiles\n  stado profiles pytorch-1gpu\n  stado profiles check my.json",
    epilog="`stado submit --profile NAME` uses one.",
    lazy={
        "show": LazyCommand("stado.cli.profiles", "show", "List or show them; the same without."),
        "check": LazyCommand("stado.cli.profiles", "check", "Say whether files are profiles."),
    },
)

_WORKLOAD = LazyGroup(
    name="workload",
    help="Start sessions of declared kinds where there is room; list and stop them.",
    lazy={
        "start": LazyCommand("stado.cli.workload", "start", "Start a session of a kind."),
        "sessions": LazyCommand("stado.cli.workload", "sessions", "List the sessions."),
        "stop": LazyCommand("stado.cli.workload", "stop", "Stop a session."),
        "kinds": LazyCommand("stado.cli.workload", "kinds", "List the kinds, or show one."),
    },
)

_SERVICE = LazyGroup(
    name="service",
    help="See what jobs started on this host, and end what they left behind.",
    lazy={
        "list": LazyCommand("stado.cli.service", "list_processes", "List processes of jobs here."),
        "reap": LazyCommand("stado.cli.service", "reap", "End what earlier jobs left here."),
        "reaped": LazyCommand("stado.cli.service", "reaped", "List what was ended, and by whom."),
    },
)

_CONTEXT = LazyGroup(
    name="context",
    help="Give stores names, and choose the current one.",
    lazy={
        "list": LazyCommand("stado.cli.contexts", "list_contexts", "List the contexts."),
        "add": LazyCommand("stado.cli.contexts", "add", "Give a store a name."),
        "use": LazyCommand("stado.cli.contexts", "use", "Make a context the current one."),
        "show": LazyCommand("stado.cli.contexts", "show", "Show a context, or the current one."),
        "remove": LazyCommand("stado.cli.contexts", "remove", "Forget a context."),
    },
)

_CONFIG = LazyGroup(
    name="config",
    help="See which settings count; change the config file.",
    lazy={
        "list": LazyCommand("stado.cli.config", "list_settings", "List what counts, and why."),
        "get": LazyCommand("stado.cli.config", "get", "Print the value of a setting."),
        "set": LazyCommand("stado.cli.config", "set_value", "Write a setting into the file."),
        "unset": LazyCommand("stado.cli.config", "unset", "Remove a setting from the file."),
        "path": LazyCommand("stado.cli.config", "path", "Print where the config file is."),
    },
)

_SETTINGS = LazyGroup(
    name="settings",
    help="See what the deployment decides for all jobs; change it.",
    lazy={
        "list": LazyCommand("stado.cli.settings", "list_settings", "List all settings."),
        "get": LazyCommand("stado.cli.settings", "get", "Print the value of a setting."),
        "set": LazyCommand("stado.cli.settings", "set_value", "Change a setting."),
        "unset": LazyCommand("stado.cli.settings", "unset", "Let a setting say nothing again."),
    },
)

_RETENTION = LazyGroup(
    name="retention",
    help="Let what ended jobs left go by age.",
    lazy={
        "show": LazyCommand("stado.cli.retention", "show", "Show the rules, and what they free."),
        "run": LazyCommand("stado.cli.retention", "run", "List what goes; with --apply delete it."),
    },
)

_AGENT = LazyGroup(
    name="agent",
    help="Make this machine a worker.",
    lazy={
        "run": LazyCommand("stado_agent.main", "run", "Run jobs on this machine."),
        "install": LazyCommand(
            "stado.cli.services", "install_agent", "Let systemd run an agent here."
        ),
        "uninstall": LazyCommand(
            "stado.cli.services", "uninstall_agent", "Stop it, and remove its unit."
        ),
        "status": LazyCommand("stado.cli.service_views", "agent_status", "Tell how it fares."),
        "logs": LazyCommand("stado.cli.service_views", "agent_logs", "Show its own log."),
    },
)

_COORDINATOR = LazyGroup(
    name="coordinator",
    help="Watch over the queue: bring back lost jobs, repair.",
    lazy={
        "run": LazyCommand("stado_coordinator.main", "run", "Watch over the queue."),
        "install": LazyCommand(
            "stado.cli.services", "install_coordinator", "Let systemd run one here."
        ),
        "uninstall": LazyCommand(
            "stado.cli.services", "uninstall_coordinator", "Stop it, and remove its unit."
        ),
        "status": LazyCommand(
            "stado.cli.service_views", "coordinator_status", "Tell which acts, and how it fares."
        ),
        "logs": LazyCommand("stado.cli.service_views", "coordinator_logs", "Show its own log."),
        "assignments": LazyCommand(
            "stado.cli.assignments", "assignments", "Show which host should get which job."
        ),
    },
)

_COST = LazyGroup(
    name="cost",
    help="What jobs cost, should cost, and might save.",
    lazy={
        "report": LazyCommand("stado.cli.cost", "report", "Show what jobs cost."),
        "estimate": LazyCommand("stado.cli.cost", "estimate", "Project what a batch would cost."),
        "allocation": LazyCommand("stado.cli.cost", "allocation", "Show who bears which part."),
        "forecast": LazyCommand("stado.cli.cost", "forecast", "Show what this month should cost."),
        "anomalies": LazyCommand("stado.cli.cost", "anomalies", "Show jobs that cost far more."),
        "savings": LazyCommand("stado.cli.cost", "savings", "Show where jobs run cheapest."),
        "budgets": LazyCommand("stado.cli.budgets", "budgets", "Show what is spent of budgets."),
    },
)

_LEDGER = LazyGroup(
    name="ledger",
    help="Look at what is kept of ended jobs' use, and make it anew.",
    lazy={
        "show": LazyCommand("stado.cli.ledger", "show", "Show how much the ledger has."),
        "rebuild": LazyCommand("stado.cli.ledger", "rebuild", "Make it anew from all verdicts."),
    },
)

_COMMANDS: Mapping[str, LazyCommand | click.Command] = {
    "init": LazyCommand("stado.cli.init", "init", "Make a directory or bucket a stado store."),
    "submit": LazyCommand("stado.cli.submit", "submit", "Queue a command, or a batch of them."),
    "profiles": _PROFILES,
    "workload": _WORKLOAD,
    "jobs": LazyCommand("stado.cli.jobs", "jobs", "List your own jobs."),
    "status": LazyCommand("stado.cli.status", "status", "List the newest jobs."),
    "hosts": _HOSTS,
    "service": _SERVICE,
    "quota": LazyCommand("stado.cli.quota", "quota", "Show limits, and who has their places."),
    "usage": LazyCommand("stado.cli.usage", "usage", "Show who has used what: GPUs, and time."),
    "cost": _COST,
    "ledger": _LEDGER,
    "job": _JOB,
    "logs": LazyCommand("stado.cli.logs", "logs", "Print a job's log."),
    "view": LazyCommand("stado.cli.live", "view", "Print where a running job can be watched."),
    "result": LazyCommand("stado.cli.outputs", "result", "Print the result of a job."),
    "outputs": LazyCommand("stado.cli.outputs", "outputs", "List what a job left."),
    "results": LazyCommand("stado.cli.results", "results", "Download what a job left."),
    "recordings": LazyCommand("stado.cli.results", "recordings", "Download a job's recordings."),
    "artifact": _ARTIFACT,
    "policy": _POLICY,
    "pipeline": _PIPELINE,
    "schedule": _SCHEDULE,
    "cancel": LazyCommand("stado.cli.cancel", "cancel", "Cancel a job or a batch."),
    "stop": LazyCommand("stado.cli.cancel", "cancel", "The same as `stado cancel`."),
    "queue": _QUEUE,
    "up": LazyCommand("stado.cli.up", "up", "Run an agent and a coordinator on this machine."),
    "agent": _AGENT,
    "coordinator": _COORDINATOR,
    "context": _CONTEXT,
    "config": _CONFIG,
    "settings": _SETTINGS,
    "retention": _RETENTION,
    "doctor": LazyCommand("stado.cli.doctor", "doctor", "Check the store and who works on it."),
    "completion": LazyCommand(
        "stado.cli.completion", "completion", "Let your shell complete what you type."
    ),
    "version": LazyCommand("stado.cli.version", "version", "Print the version."),
}


def _context_names() -> list[str]:
    from stado.cli.context import context_names

    return context_names()


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from stado.cli.version import version_line

        click.echo(version_line())
        ctx.exit()


_SECTIONS: Mapping[str, Sequence[str]] = {
    "Begin": ("init", "up", "submit", "doctor"),
    "Jobs": (
        *("status", "jobs", "job", "logs", "view", "cancel", "stop"),
        *("queue", "pipeline", "schedule", "workload", "profiles"),
    ),
    "What jobs leave": (
        *("results", "result", "outputs", "recordings"),
        *("artifact", "policy", "retention"),
    ),
    "Hosts": ("hosts", "agent", "coordinator", "service"),
    "Limits, use and cost": ("quota", "usage", "cost", "ledger"),
    "Set-up": ("context", "config", "settings", "completion", "version"),
}

cli = Program(
    name="stado",
    lazy=_COMMANDS,
    sections=_SECTIONS,
    help="A job queue whose whole state lives in one bucket or directory.",
    epilog="Begin with `stado init ./queue`; `stado COMMAND --help` explains a command.",
    context_settings={"help_option_names": ["-h", "--help"], "obj": _context_names},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version.",
        )
    ],
)


def run() -> None:
    """All of the command line, in this process."""
    cli.main()


if __name__ == "__main__":
    run()
