"""A policy's checkpoint outside of any store: its files with a manifest that says what they are,
in a folder or in a tar file.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

from stado.core.documents import canonical
from stado.core.records import Checkpoint, PolicySeal, SaveRef
from stado.core.states import Kind
from stado.errors import Refused
from stado.jobs.policies import check_free, restored_beside
from stado.jobs.repository import Repository

MANIFEST_NAME = "stado-policy.json"
_TAR_MODES = {".tar": "w:", ".tar.gz": "w:gz", ".tgz": "w:gz"}


def export_save(
    repo: Repository, seal: PolicySeal, kind: Kind, save: SaveRef, target: Path
) -> dict[str, Any]:
    """Writes a folder, or a tar file where `target` is named like one; its manifest. Nothing is
    written over. Raises `Refused` as `download_save` does."""
    mode = next((mode for end, mode in _TAR_MODES.items() if target.name.endswith(end)), None)
    if mode is None:
        check_free(target)
        with restored_beside(repo, seal, save, target) as (checkpoint, restored):
            manifest = _manifest(seal, kind, save, checkpoint)
            _write_manifest(restored, manifest)
            for path in sorted(restored.iterdir()):
                os.replace(path, target / path.name)
        return manifest
    if target.exists():
        raise Refused("export_exists", f"{target} exists already: name another file")
    with restored_beside(repo, seal, save, target.absolute().parent) as (checkpoint, restored):
        manifest = _manifest(seal, kind, save, checkpoint)
        _write_manifest(restored, manifest)
        packed = restored.with_name("packed")
        _pack(restored, packed, mode, seal.policy_id, round(save.at.timestamp()))
        os.replace(packed, target)
    return manifest


def _manifest(
    seal: PolicySeal, kind: Kind, save: SaveRef, checkpoint: Checkpoint
) -> dict[str, Any]:
    meta = save.meta
    return {
        "schema": 1,
        "policy_id": seal.policy_id,
        "kind": kind.value,
        "job_id": seal.job_id,
        "saved_at": save.at.isoformat(),
        "step": meta.step if meta is not None else None,
        "metric": meta.metric if meta is not None else None,
        "value": meta.value if meta is not None else None,
        "higher_is_better": meta.higher_is_better if meta is not None else None,
        "files": [
            {"path": file.path, "size": file.size, "sha256": file.sha256}
            for file in checkpoint.files
        ],
    }


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """A file of the job's that has this name keeps it."""
    name = MANIFEST_NAME
    while (folder / name).exists():
        name = f"stado.{name}"
    (folder / name).write_bytes(canonical(manifest) + b"\n")


def _pack(folder: Path, target: Path, mode: str, name: str, at: int) -> None:
    """All below one folder that is named after the policy. The same checkpoint gives the same
    members: nothing of this machine is in them."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = at
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with tarfile.open(target, mode) as archive:  # type: ignore[call-overload]
        archive.add(folder, arcname=name, filter=plain)
