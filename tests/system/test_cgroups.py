"""Control groups: where they are, what they offer here, and what is never touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stado.ports import Channel, Containment, ProcessIdentity
from stado.system.cgroup_mounts import FREEZER_V1, MEMORY_V1, V2, Hierarchy, find_hierarchies
from stado.system.cgroup_places import Place, place_in, with_memory
from stado.system.cgroups import Cgroups
from stado.system.processes import LiveProcesses
from tests.system.commands import MECHANISMS, WAIT_SECONDS, eventually, kill, read_pid, shell

NOBODY = ProcessIdentity(pid=2**22 + 1, started=1)
"""No kernel gives such a pid."""

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def find(folder: Path, mounts: str, groups: str) -> list[Hierarchy]:
    (folder / "mountinfo").write_text(mounts)
    (folder / "cgroup").write_text(groups)
    return find_hierarchies(folder / "mountinfo", folder / "cgroup")


# Where they are


def test_a_hybrid_host_has_both_versions(tmp_path: Path) -> None:
    groups = "9:name=systemd:/\n6:freezer:/a/b\n4:memory:/a\n3:blkio:/\n0::/\n"
    root = Path("/sys/fs/cgroup")
    assert find(tmp_path, HYBRID, groups) == [
        Hierarchy(MEMORY_V1, root / "memory", root / "memory/a"),
        Hierarchy(FREEZER_V1, root / "freezer", root / "freezer/a/b"),
        Hierarchy(V2, root / "unified", root / "unified"),
    ]


def test_a_host_with_version_2_alone(tmp_path: Path) -> None:
    mounts = "24 22 0:21 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    (found,) = find(tmp_path, mounts, "0::/user.slice/user-1000.slice/x.scope\n")
    assert found.own == Path("/sys/fs/cgroup/user.slice/user-1000.slice/x.scope")
    assert list(found.own_and_above())[-2:] == [
        Path("/sys/fs/cgroup/user.slice"),
        Path("/sys/fs/cgroup"),
    ]


def test_a_container_sees_its_own_part_at_the_mount_point(tmp_path: Path) -> None:
    mounts = "9 8 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    (found,) = find(tmp_path, mounts, "4:memory:/docker/abc/x\n")
    assert found.own == Path("/sys/fs/cgroup/memory/x")
    assert find(tmp_path, mounts, "4:memory:/docker/other\n") == []
    assert find(tmp_path, mounts, "4:memory:/docker/abc/../other\n") == []


def test_a_mount_point_may_have_spaces(tmp_path: Path) -> None:
    mounts = "9 8 0:32 / /odd\\040place rw - cgroup2 cgroup2 rw\n"
    assert find(tmp_path, mounts, "0::/a:b\n") == [
        Hierarchy(V2, Path("/odd place"), Path("/odd place/a:b"))
    ]


def test_a_mount_point_need_not_be_text(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_bytes(
        b"9 8 0:99 / /media/stick\xff rw - vfat /dev/sdb1 rw\n"
        b"9 8 0:32 / /odd\xff rw - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "cgroup").write_bytes(b"0::/a\xfe\n")
    (found,) = find_hierarchies(tmp_path / "mountinfo", tmp_path / "cgroup")
    assert os.fsencode(found.own) == b"/odd\xff/a\xfe"


def test_a_kernel_without_any_has_none(tmp_path: Path) -> None:
    assert find_hierarchies(tmp_path / "absent", tmp_path / "absent") == []
    assert find(tmp_path, "24 22 0:21 / / rw - ext4 /dev/a rw\n", "") == []


# What they offer


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_is_offered_is_tried_out_and_nothing_is_left_of_the_trial(name: str) -> None:
    cgroups = MECHANISMS[name]()
    membership = Path("/proc/self/cgroup").read_text()
    found = cgroups.containment()
    assert Path("/proc/self/cgroup").read_text() == membership
    for hierarchy in find_hierarchies():
        assert not list(hierarchy.own.glob(f"stado-{os.getpid()}-*"))
    assert found.contains_by in ("cgroup-v2", "cgroup-v1", "process-tree")
    assert found.limits_memory_by in ("cgroup-v2", "cgroup-v1", "watchdog")
    if name == "process-tree":
        assert found == Containment("process-tree", "watchdog")
    if name.startswith("v2"):
        assert found.contains_by in ("cgroup-v2", "process-tree")


def test_folders_that_do_not_behave_like_groups_are_not_used(tmp_path: Path) -> None:
    kinds = (V2, FREEZER_V1, MEMORY_V1)
    cgroups = Cgroups([Hierarchy(kind, tmp_path, tmp_path) for kind in kinds])
    assert cgroups.containment() == Containment("process-tree", "watchdog")
    assert list(tmp_path.iterdir()) == []


def test_who_was_started_in_the_agents_group_makes_groups_beside_it(tmp_path: Path) -> None:
    own = tmp_path / "stado-agent"
    assert place_in(Hierarchy(V2, tmp_path, own)).base == tmp_path
    assert place_in(Hierarchy(V2, tmp_path, own)).home == own
    assert place_in(Hierarchy(FREEZER_V1, tmp_path, own)).base == own


def test_memory_is_enabled_where_it_is_offered(tmp_path: Path) -> None:
    """As in a group without processes, or in the root."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    place = with_memory(Place(V2, base=tmp_path, home=tmp_path, limits_memory=False))
    assert place == Place(V2, base=tmp_path, home=tmp_path, limits_memory=True)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert with_memory(place) == place


def test_without_the_controller_there_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    place = Place(V2, base=tmp_path, home=tmp_path, limits_memory=False)
    assert with_memory(place) == place
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cgroup.controllers"]


def test_a_group_that_has_processes_keeps_its_controllers_and_its_processes(
    tmp_path: Path,
) -> None:
    """The kernel refuses to hand them on, as it does to change this file. Nobody is moved for it:
    a service manager could not start the agent again beside its jobs."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").symlink_to("/proc/version")
    place = Place(V2, base=tmp_path, home=tmp_path, limits_memory=False)
    assert with_memory(place) == place


# After the death of a supervisor


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
@pytest.mark.parametrize("name", MECHANISMS)
def test_what_a_dead_supervisor_had_enclosed_is_killed_and_removed(
    name: str, tmp_path: Path
) -> None:
    """R203: also what has left its session, where the host has control groups."""
    script = "setsid sh -c 'echo $$ >outside; exec sleep 60' & echo $$ >inside; exec sleep 60"
    processes = LiveProcesses(cgroups=MECHANISMS[name]())
    contains = processes.containment().contains_by != "process-tree"

    def main(channel: object) -> None:
        job = shell(processes, tmp_path, script)
        (tmp_path / "enclosure").write_text("".join(f"{path}\n" for path in job.enclosure))
        read_pid(tmp_path / "outside")
        os.kill(os.getpid(), 9)

    peer = processes.fork(main)
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()
    inside, outside = (read_pid(tmp_path / path) for path in ("inside", "outside"))
    enclosure = [Path(line) for line in (tmp_path / "enclosure").read_text().split()]
    assert bool(enclosure) == contains
    assert processes.kill_session(peer.identity, enclosure)
    assert processes.identify(inside) is None
    assert (processes.identify(outside) is None) == contains
    assert not any(folder.exists() for folder in enclosure)
    assert processes.kill_session(peer.identity, enclosure)
    if not contains:
        os.kill(outside, 9)


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_supervisor_that_died_before_it_could_note_anything_leaves_nothing(
    name: str, tmp_path: Path
) -> None:
    """R203: its group is known by its name."""
    processes = LiveProcesses(cgroups=MECHANISMS[name]())
    contains = processes.containment().contains_by != "process-tree"

    def main(channel: object) -> None:
        shell(processes, tmp_path, "setsid sh -c 'echo $$ >outside; exec sleep 60' & sleep 60")
        read_pid(tmp_path / "outside")
        os.kill(os.getpid(), 9)

    peer = processes.fork(main)
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()
    outside = read_pid(tmp_path / "outside")
    assert processes.kill_session(peer.identity)
    assert (processes.identify(outside) is None) == contains
    if not contains:
        os.kill(outside, 9)


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
@pytest.mark.parametrize("name", MECHANISMS)
def test_empty_groups_of_dead_supervisors_are_removed_and_of_living_ones_are_not(
    name: str, tmp_path: Path
) -> None:
    processes = LiveProcesses(cgroups=MECHANISMS[name]())
    processes.containment()

    def main(channel: Channel) -> None:
        job = shell(processes, tmp_path, "exec sleep 60")
        kill(job)
        channel.send({"enclosure": [str(folder) for folder in job.enclosure]})
        channel.receive(None)

    peer = processes.fork(main)
    told = peer.channel.receive(WAIT_SECONDS)
    assert told is not None
    folders = [Path(folder) for folder in told["enclosure"]]
    processes.containment()
    assert all(folder.exists() for folder in folders)
    peer.kill()
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()
    processes.containment()
    assert not any(folder.exists() for folder in folders)


def test_only_groups_of_commands_are_killed_on_a_notes_word(tmp_path: Path) -> None:
    top = tmp_path / "top"
    witness = subprocess.Popen(["sleep", "60"])
    folders = [
        tmp_path / "stado-elsewhere",
        top / "other",
        top / "stado-agent",
        top / ".." / "stado-elsewhere",
        top / "stado-link",
    ]
    for folder in folders[:3]:
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(f"{witness.pid}\n")
    folders[-1].symlink_to(tmp_path / "stado-elsewhere")
    folders.append(top / "stado-gone")
    processes = LiveProcesses(cgroups=Cgroups([Hierarchy(V2, top, top)]))
    assert processes.kill_session(NOBODY, folders)
    assert witness.poll() is None
    assert all(folder.exists() for folder in folders[:3])
    witness.kill()
    witness.wait()


def test_a_killer_in_the_group_spares_itself(tmp_path: Path) -> None:
    folder = tmp_path / "stado-mine"
    folder.mkdir()
    witness = subprocess.Popen(["sleep", "60"])
    (folder / "cgroup.kill").write_text("")
    (folder / "cgroup.procs").write_text(f"0\n{os.getpid()}\n{witness.pid}\n")
    processes = LiveProcesses(
        cgroups=Cgroups([Hierarchy(V2, tmp_path, tmp_path)]), kill_seconds_max=0.05
    )
    assert not processes.kill_session(NOBODY, [folder])
    assert witness.wait(20) == -9
    assert (folder / "cgroup.kill").read_text() == ""
