"""What a dead supervisor left on this host of a job's log is still brought to the store."""

from __future__ import annotations

import logging

from stado.errors import StoreError
from stado.jobs.log_compaction import compact_log
from stado.jobs.repository import Repository
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit, LogSpool
from stado_agent.workspace import Workspace

log = logging.getLogger(__name__)


def salvage(repo: Repository, workspace: Workspace, limit: LogLimit) -> bool:
    """Ships what is left in the spool, below the keys of the epoch that printed it, and removes
    the workspace. Whether that is done: else it stays, to be tried again.

    The supervisor and its command must be dead. A crash leaves the rest in the spool."""
    try:
        of = workspace.find_log_epoch()
        if of is None:
            workspace.remove()
            return True
        spool = LogSpool.left_in(workspace.log, limit, repo.tasks.lock())
        shipper = LogShipper(repo, spool, limit, of)
        shipper.go_on()
        account = shipper.ship_rest()
    except (StoreError, OSError) as error:
        log.warning("event=salvage_delayed workspace=%s error=%r", workspace.root.name, str(error))
        return False
    log.info("event=log_salvaged job=%s epoch=%d bytes=%d", of.job_id, of.epoch, account.written)
    workspace.remove()
    if shipper.segments > limit.segments_max:
        _compact(repo, of, limit)
    return True


def _compact(repo: Repository, of: LogEpoch, limit: LogLimit) -> None:
    """What the store does not take stays as it is."""
    try:
        compact_log(repo, of.job_id, of.epoch, segments_max=limit.segments_max)
    except StoreError as error:
        log.warning("event=log_not_compacted job=%s error=%r", of.job_id, str(error))
