"""Trees in archives: the same tree makes the same archive, and nothing else comes out of one."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from stado.errors import Refused
from stado.jobs.archives import PackedTree, UnsafeArchive, pack, unpack

ODD_NAMES = (b"plain", b"with blank", b"new\nline", b"\xff\xfe not utf-8", b"-option", b"d" * 200)
DEEP = b"/".join([b"a-long-name-of-a-folder"] * 30)


def make_tree(folder: Path) -> list[bytes]:
    """Of every kind; its paths."""
    root = os.fsencode(folder)
    os.makedirs(os.path.join(root, b"sub", DEEP))
    contents = {name: b"x\r\n\0" + name for name in ODD_NAMES}
    contents |= {b"sub/empty": b"", b"sub/big": os.urandom(1_200_000), b"sub/" + DEEP + b"/f": b"1"}
    for path, data in contents.items():
        with open(os.path.join(root, path), "wb") as file:
            file.write(data)
    os.chmod(os.path.join(root, b"plain"), 0o6751)
    links = {b"link": b"sub/empty", b"sub/up": b"../plain", b"dangling": b"sub/none", b"to": b"sub"}
    for path, target in links.items():
        os.symlink(target, os.path.join(root, path))
    return [*contents, *links]


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, list[bytes]]:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder, make_tree(folder)


def unpacked(archive: Path, packed: PackedTree, folder: Path) -> PackedTree:
    folder.mkdir()
    return unpack(archive, folder, files_max=packed.files, bytes_max=packed.bytes)


def test_what_is_packed_comes_out_as_it_was(tree: tuple[Path, list[bytes]], tmp_path: Path) -> None:
    """R24: kinds, contents, odd names, modes as 0644 and 0755, links as links."""
    folder, paths = tree
    packed = pack(folder, paths, tmp_path / "a")
    out = tmp_path / "out"
    assert unpacked(tmp_path / "a", packed, out) == packed
    assert packed.files == len(paths)
    for path in paths:
        there, here = (os.path.join(os.fsencode(one), path) for one in (folder, out))
        if os.path.islink(there):
            assert os.readlink(here) == os.readlink(there)
        else:
            assert Path(os.fsdecode(here)).read_bytes() == Path(os.fsdecode(there)).read_bytes()
            mode = 0o755 if path == b"plain" else 0o644
            assert os.lstat(here).st_mode & 0o7777 == mode
    assert pack(out, paths, tmp_path / "b") == packed


def test_the_same_tree_makes_the_same_archive_whatever_its_times_and_order(
    tree: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    folder, paths = tree
    packed = pack(folder, paths, tmp_path / "a")
    for path in paths:
        os.utime(os.path.join(os.fsencode(folder), path), (1, 1), follow_symlinks=False)
    assert pack(folder, reversed([*paths, *paths]), tmp_path / "b") == packed
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"other"),
        lambda path: path.chmod(0o755),
        lambda path: path.rename(path.with_name("renamed")),
        lambda path: (path.unlink(), path.symlink_to("g")),
    ],
    ids=["content", "mode", "name", "kind"],
)
def test_each_change_makes_another_tree(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "g").write_bytes(b"g")
    (folder / "f").write_bytes(b"f")
    before = pack(folder, [b"f", b"g"], tmp_path / "a")
    change(folder / "f")
    paths = [os.fsencode(path.name) for path in folder.iterdir()]
    assert pack(folder, paths, tmp_path / "b").digest != before.digest


class Changing:
    """Paths of which one is changed when a certain one is asked for."""

    def __init__(self, paths: Iterable[bytes], change: Callable[[], object]) -> None:
        self._paths = list(paths)
        self._change = change

    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from self._paths
        self._change()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
    ids=["gone", "folder", "pipe"],
)
def test_what_is_no_file_any_more_is_noticed(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    (tmp_path / "f").write_bytes(b"f")
    with pytest.raises(Refused, match="'f' changed while it was packed"):
        pack(tmp_path, Changing([b"f"], lambda: change(tmp_path / "f")), tmp_path / "a")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"x" * 1_500_000),
        lambda path: path.open("ab").write(b"more"),
        lambda path: os.truncate(path, 10),
        lambda path: path.chmod(0o600),
        lambda path: path.unlink(),
    ],
    ids=["rewritten", "grown", "cut", "mode", "gone"],
)
@pytest.mark.parametrize("moment", [0, 2])
def test_a_file_that_changes_while_it_is_packed_is_noticed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    moment: int,
) -> None:
    """While it is read, and while those after it are."""
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_bytes(os.urandom(1_500_000))
    (folder / "b").write_bytes(b"b")
    written = Counted(lambda: change(folder / "a"), at=moment)
    monkeypatch.setattr(gzip.GzipFile, "write", written.around(gzip.GzipFile.write))
    with pytest.raises(Refused, match="'a' changed while it was packed"):
        pack(folder, [b"a", b"b"], tmp_path / "archive")
    assert written.happened


class Counted:
    """Something that happens after a method has written for the n-th time."""

    def __init__(self, happening: Callable[[], object], *, at: int) -> None:
        self._happening = happening
        self._left = at + 1
        self.happened = False

    def around(self, method: Callable[..., int]) -> Callable[..., int]:
        def call(file: object, data: bytes) -> int:
            result = method(file, data)
            self._left -= bool(data)
            if self._left == 0:
                self._happening()
                self.happened = True
            return result

        return call


# --- archives of others ---------------------------------------------------------------------


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode = kind, 0o644
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def write_archive(path: Path, *members: tarfile.TarInfo, format_: int = tarfile.GNU_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=format_) as tar:
        for one in members:
            tar.addfile(one, io.BytesIO(b"x" * one.size))
    return path


HOSTILE = {
    "parent": [member("../outside")],
    "deep parent": [member("a/../../outside")],
    "absolute": [member("/tmp/outside")],
    "dot": [member("./a")],
    "link to the root": [member("a", tarfile.SYMTYPE, linkname="/")],
    "link to a parent": [member("a", tarfile.SYMTYPE, linkname="..")],
    "link that leaves by another": [
        member("a/b/up", tarfile.SYMTYPE, linkname="../.."),
        member("a/c", tarfile.SYMTYPE, linkname="b/up/../outside"),
    ],
    "below a link": [member("a", tarfile.SYMTYPE, linkname="."), member("a/b")],
    "below a file": [member("a"), member("a/b")],
    "hard link": [member("a", tarfile.LNKTYPE, linkname="/etc/passwd")],
    "device": [member("a", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [member("a", tarfile.BLKTYPE)],
    "pipe": [member("a", tarfile.FIFOTYPE)],
    "folder": [member("a", tarfile.DIRTYPE)],
    "contiguous": [member("a", tarfile.CONTTYPE)],
    "sparse": [member("a", tarfile.GNUTYPE_SPARSE)],
    "setuid": [member("a", mode=0o4755)],
    "group may write": [member("a", mode=0o664)],
    "twice": [member("a"), member("a")],
    "out of order": [member("b"), member("a")],
    "more files": [member(f"{number}") for number in range(6)],
    "more bytes": [member("a", size=2000)],
    "long name": [member("n" * 300)],
    "long path": [member("/".join(["n"] * 2000))],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_an_archive_that_is_none_of_ours_leaves_nothing_outside(
    tmp_path: Path, members: list[tarfile.TarInfo]
) -> None:
    """R24"""
    archive = write_archive(tmp_path / "archive", *members)
    folder = tmp_path / "in" / "folder"
    folder.mkdir(parents=True)
    with pytest.raises(UnsafeArchive):
        unpack(archive, folder, files_max=5, bytes_max=1000)
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["folder"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "in"]
    assert all(not path.stat().st_mode & 0o7000 for path in folder.rglob("*") if path.is_file())


def test_what_unpacks_to_more_than_was_announced_is_left_early(tmp_path: Path) -> None:
    """A name of a gigabyte is a few hundred kilobytes of archive."""
    archive = tmp_path / "archive"
    header = member("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=1 << 30)
    with gzip.open(archive, "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(b"n" * (1 << 20))
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnsafeArchive, match="more than was announced"):
        unpack(archive, tmp_path / "folder", files_max=5, bytes_max=1000)


@pytest.mark.parametrize(
    "data",
    [b"", b"nonsense", gzip.compress(b"nonsense" * 200, mtime=0)],
    ids=["empty", "nonsense", "compressed nonsense"],
)
def test_what_is_no_archive_is_unsafe(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "archive").write_bytes(data)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnsafeArchive):
        unpack(tmp_path / "archive", tmp_path / "folder", files_max=5, bytes_max=1000)


def test_an_archive_that_was_cut_off_or_changed_is_never_taken_for_a_whole_one(
    tree: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    folder, paths = tree
    packed = pack(folder, paths, tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    for number, data in enumerate(
        [whole[: len(whole) * share // 20] for share in range(20)]
        + [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (40, 1000, 1_000_000)]
    ):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(UnsafeArchive):
            if unpacked(tmp_path / "bad", packed, tmp_path / f"out-{number}") != packed:
                raise UnsafeArchive


def test_a_tar_with_headers_of_another_kind_is_unsafe(tmp_path: Path) -> None:
    odd = member("a")
    odd.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    archive = write_archive(tmp_path / "archive", odd, format_=tarfile.PAX_FORMAT)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnsafeArchive):
        unpack(archive, tmp_path / "folder", files_max=5, bytes_max=1000)


def test_unpacking_ends_by_what_is_raised_between(
    tree: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    folder, paths = tree
    packed = pack(folder, paths, tmp_path / "a")
    (tmp_path / "out").mkdir()

    def stop() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        unpack(
            tmp_path / "a",
            tmp_path / "out",
            files_max=packed.files,
            bytes_max=packed.bytes,
            between=stop,
        )
