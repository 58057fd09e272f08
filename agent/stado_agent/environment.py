"""What a job's command finds in its environment.

The agent's own, so that PATH and the like are the host's, without what opens the store: a job
gets only the secrets that were given to it. docs/environment.md has the table of what we set.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stado.core.records import Record
from stado.core.spec import CARDS_VARIABLE, largest_text, variable_bytes
from stado_agent.workspace import Workspace

_WITHHELD_PREFIXES = ("STADO_", "AWS_")
_WITHHELD = frozenset({"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_ACCESS_TOKEN"})
_OF_THE_SERVICE = frozenset(
    {
        *("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "JOURNAL_STREAM"),
        *("SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "MAINPID"),
        *("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "MANAGERPID"),
    }
)
"""What a service manager tells the agent of itself: a command is no service."""


def command_environment(
    host: Mapping[str, str],
    record: Record,
    workspace: Workspace,
    secrets: Mapping[str, str] = MappingProxyType({}),
    *,
    body_run: int = 1,
) -> dict[str, str]:
    """The host's variables, then the job's own, then ours. `secrets`: values by variable.
    `body_run`: for which time the command is run in this epoch."""
    return {
        **inherited_environment(host),
        **record.spec.environment,
        **secrets,
        **_own(record, workspace),
        "STADO_BODY_RUN": str(body_run),
    }


def contained_environment(
    record: Record,
    workspace: Workspace,
    secrets: Mapping[str, str] = MappingProxyType({}),
    *,
    body_run: int = 1,
) -> dict[str, str]:
    """In a container: the image's own variables are there already, the host's mean nothing."""
    return {
        "HOME": str(workspace.work),
        **record.spec.environment,
        **secrets,
        **_own(record, workspace),
        "STADO_BODY_RUN": str(body_run),
    }


def inherited_environment(host: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in host.items()
        if not name.startswith(_WITHHELD_PREFIXES) and name not in _WITHHELD | _OF_THE_SERVICE
    }


def sizes_text(environment: Mapping[str, str], host: Mapping[str, str]) -> str:
    """How large an environment is that the host does not take, and what makes it so."""
    total = sum(map(variable_bytes, environment.items()))
    inherited = sum(map(variable_bytes, inherited_environment(host).items()))
    return (
        f"the environment has {total:,} bytes ({largest_text(environment)}), of which the agent's "
        f"own is {inherited:,}: give the job less, or start the agent with less"
    )


def _cards(record: Record) -> str:
    """Nothing for a job that reserves none: it must not find those that another one uses."""
    return ",".join(record.holder.cards) if record.holder is not None else ""


def _own(record: Record, workspace: Workspace) -> dict[str, str]:
    own = {
        "STADO_JOB_ID": record.id,
        "STADO_RUN_ID": record.run_id,
        "STADO_EPOCH": str(record.epoch),
        "STADO_INPUT_DIR": str(workspace.inputs),
        "STADO_OUTPUT_DIR": str(workspace.output),
        "STADO_CHECKPOINT_DIR": str(workspace.checkpoints),
        "STADO_REPORT_DIR": str(workspace.report),
        CARDS_VARIABLE: _cards(record),
        "STADO_WORLD_SIZE": "1",
        "STADO_RANK": "0",
    }
    if record.batch_id is not None:
        own["STADO_BATCH_ID"] = record.batch_id
    if record.spec.array is not None and record.spec.array.index is not None:
        own["STADO_ARRAY_INDEX"] = str(record.spec.array.index)
    return own
