"""What a job's command finds in its environment.

The agent's own, so that PATH and the like are the host's, without what opens the store: a job
gets only the secrets that were given to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from stado.core.records import Record
from stado_agent.workspace import Workspace

_WITHHELD_PREFIXES = ("STADO_", "AWS_")
_WITHHELD = frozenset({"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_ACCESS_TOKEN"})


def command_environment(
    host: Mapping[str, str], record: Record, workspace: Workspace
) -> dict[str, str]:
    """The host's variables, then the job's own, then ours."""
    inherited = {
        name: value
        for name, value in host.items()
        if not name.startswith(_WITHHELD_PREFIXES) and name not in _WITHHELD
    }
    return inherited | record.spec.environment | _own(record, workspace)


def _own(record: Record, workspace: Workspace) -> dict[str, str]:
    own = {
        "STADO_JOB_ID": record.id,
        "STADO_RUN_ID": record.run_id,
        "STADO_EPOCH": str(record.epoch),
        "STADO_OUTPUT_DIR": str(workspace.output),
        "STADO_CHECKPOINT_DIR": str(workspace.checkpoints),
    }
    if record.batch_id is not None:
        own["STADO_BATCH_ID"] = record.batch_id
    return own
