"""The folders of an agent on its host, and the notes that a restarted agent reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core.order import Needs
from stado.ports import ProcessIdentity
from stado_agent.workspace import HostFolder, SupervisorNote

NOTE = SupervisorNote(
    supervisor=ProcessIdentity(17, 1000),
    job_id="a" * 16,
    epoch=2,
    needs=Needs(1000, 1024),
    workspace="a.1",
)


def _folder(path: Path) -> HostFolder:
    folder = HostFolder(path, "local@host")
    folder.make()
    return folder


def test_a_note_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    folder.write_note(NOTE)
    assert list(folder.notes()) == [NOTE]
    assert folder.read_note(17) == NOTE
    folder.remove_note(17)
    assert list(folder.notes()) == []


def test_a_note_that_was_cut_short_is_thrown_away(tmp_path: Path) -> None:
    """The store knows the rest."""
    folder = _folder(tmp_path)
    folder.write_note(NOTE)
    (path,) = (folder.root / "supervisors").iterdir()
    path.write_bytes(NOTE.encode()[:20])
    assert list(folder.notes()) == []
    assert list((folder.root / "supervisors").iterdir()) == []


def test_signs_change_when_a_supervisor_gives_one(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    assert folder.signs(17) == 0
    folder.write_note(NOTE)
    before = folder.signs(17)
    while folder.signs(17) == before:
        folder.touch_note(17)
    assert folder.signs(17) != before


def test_a_workspace_is_fresh_whatever_was_there(tmp_path: Path) -> None:
    workspace = _folder(tmp_path).workspace("a" * 16, 1)
    workspace.make()
    (workspace.work / "left").write_text("over")
    workspace.make()
    assert list(workspace.work.iterdir()) == []
    workspace.remove()
    assert not workspace.root.exists()


def test_a_consumer_of_any_name_has_a_folder_of_its_own(tmp_path: Path) -> None:
    names = ["a/b", "..", "local@host", "ü"]
    roots = {HostFolder(tmp_path, name).root for name in names}
    assert len(roots) == len(names)
    assert all(root.parent == tmp_path for root in roots)


def test_the_folders_of_jobs_do_not_depend_on_where_the_agent_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that works elsewhere finds them by what it is told of them."""
    monkeypatch.chdir(tmp_path)
    assert HostFolder(Path("work"), "local@host").root == tmp_path / "work" / "local@host"
