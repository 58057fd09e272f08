"""Which files of a folder go along, whatever git and its user's settings say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stado.errors import Refused
from stado.jobs.archives import pack, unpack
from stado.system.source_tree import SourceTree, read_source_tree

IDENTITY = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user with settings that have broken other tools."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[diff]\n noprefix = true\n external = /bin/false\n mnemonicPrefix = true\n"
        "[core]\n quotepath = true\n autocrlf = true\n fsmonitor = /bin/false\n pager = false\n"
        "[status]\n showUntrackedFiles = no\n relativePaths = true\n short = true\n branch = true\n"
        '[color]\n ui = always\n[protocol "file"]\n allow = always\n[init]\n defaultBranch = x\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    return home


def git(folder: Path, *arguments: str) -> str:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("GIT_")}
    done = subprocess.run(
        ["git", *IDENTITY, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def work_tree(folder: Path) -> Path:
    git(folder, "init", "-q")
    return folder


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", "all")
    return git(folder, "rev-parse", "HEAD")


def names(tree: SourceTree) -> list[str]:
    return sorted(os.fsdecode(path) for path in tree.sizes)


def test_what_is_taken_is_what_lies_there_whatever_is_committed_or_staged(work_tree: Path) -> None:
    """A69: staged, unstaged, untracked, deleted, ignored, replaced by a folder."""
    write(work_tree, "same", "changed", "staged", "deleted", "gone", "file-to-folder", ".gitignore")
    (work_tree / ".gitignore").write_text("ignored\n")
    sha = commit(work_tree)
    write(work_tree, "new", "ignored", "deep/er/new", 'odd ü\n"name', "-n")
    (work_tree / "changed").write_text("other\n")
    (work_tree / "staged").write_text("other\n")
    git(work_tree, "add", "staged")
    (work_tree / "deleted").unlink()
    git(work_tree, "rm", "-q", "gone")
    (work_tree / "file-to-folder").unlink()
    write(work_tree, "file-to-folder/inside")
    tree = read_source_tree(work_tree)
    assert names(tree) == sorted(
        [
            *("same", "changed", "staged", "new", "deep/er/new", 'odd ü\n"name', "-n"),
            *("file-to-folder/inside", ".gitignore"),
        ]
    )
    assert (tree.in_git, tree.commit, tree.untracked) == (True, sha, 5)
    assert sorted(tree.changed) == sorted(
        [
            *("changed", "staged", "new", "deep/er/new", 'odd ü\n"name', "-n", "deleted", "gone"),
            *("file-to-folder", "file-to-folder/inside"),
        ]
    )


def test_a_folder_within_a_work_tree_is_taken_alone(work_tree: Path) -> None:
    write(work_tree, "a/one", "a/b/two", "c/three")
    commit(work_tree)
    write(work_tree, "c/new", "a/.stadoignore")
    tree = read_source_tree(work_tree / "a")
    assert names(tree) == [".stadoignore", "b/two", "one"]
    assert tree.changed == [".stadoignore"]


def test_a_clean_checkout_differs_in_nothing(work_tree: Path) -> None:
    """With line ends that the user's settings would convert."""
    (work_tree / "crlf").write_bytes(b"one\r\ntwo\n\r")
    commit(work_tree)
    tree = read_source_tree(work_tree)
    assert (tree.changed, tree.untracked) == ([], 0)
    assert tree.sizes == {b"crlf": 10}


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_was_told_not_to_look_at_counts_as_it_stands(
    work_tree: Path, tmp_path: Path, mark: str
) -> None:
    """A69: also below a folder, with another length or the same, with other bits; and what is the
    same is not dirty for its mark."""
    marked = ("same", "a/longer", "a/other", "a/mode", 'a/odd ü\n"name')
    write(work_tree, *marked, "plain", "a/staged")
    commit(work_tree)
    git(work_tree, "update-index", mark, *marked)
    index = (work_tree / ".git" / "index").read_bytes()
    (work_tree / "a/longer").write_text("longer than it was\n")
    (work_tree / "a/other").write_text("a/OTHER\n")
    (work_tree / "a/mode").chmod(0o755)
    (work_tree / 'a/odd ü\n"name').unlink()
    (work_tree / 'a/odd ü\n"name').symlink_to("other")
    tree = read_source_tree(work_tree / "a")
    assert sorted(tree.changed) == ["longer", "mode", 'odd ü\n"name', "other"]
    assert tree.unwatched == 4
    archive, unpacked = tmp_path / "archive", tmp_path / "unpacked"
    packed = pack(work_tree / "a", tree.sizes, archive)
    unpacked.mkdir()
    unpack(archive, unpacked, files_max=packed.files, bytes_max=packed.bytes)
    assert (unpacked / "longer").read_text() == "longer than it was\n"
    assert (unpacked / "other").read_text() == "a/OTHER\n"
    assert (work_tree / ".git" / "index").read_bytes() == index
    (work_tree / "a/staged").write_text("other\n")
    git(work_tree, "add", "a/staged")
    (work_tree / "a/new").touch()
    tree = read_source_tree(work_tree)
    assert {"a/other", "a/staged", "a/new"} <= set(tree.changed)
    assert (tree.untracked, tree.unwatched) == (1, 4)
    assert "same" not in tree.changed


def test_a_marked_file_that_is_not_there_was_deleted_or_never_checked_out(work_tree: Path) -> None:
    """What a sparse checkout leaves out is no change, but it is told."""
    write(work_tree, "kept", "deleted", "sparse/one", "sparse/ignored")
    (work_tree / ".stadoignore").write_text("ignored\n")
    commit(work_tree)
    git(work_tree, "update-index", "--assume-unchanged", "deleted")
    git(work_tree, "update-index", "--skip-worktree", "sparse/one", "sparse/ignored")
    for name in ("deleted", "sparse/one", "sparse/ignored"):
        (work_tree / name).unlink()
    tree = read_source_tree(work_tree)
    assert tree.changed == ["deleted"]
    assert tree.left_out == ["sparse/one: git does not check it out here (skip-worktree)"]


def test_a_work_tree_without_a_commit_is_taken_too(work_tree: Path) -> None:
    write(work_tree, "a", "b")
    git(work_tree, "add", "a")
    tree = read_source_tree(work_tree)
    assert (names(tree), tree.commit) == (["a", "b"], None)


def test_submodules_and_other_repositories_are_named_and_not_taken(
    work_tree: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    write(other, "inside")
    commit(other)
    write(work_tree, "own")
    git(work_tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other))
    nested = work_tree / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    write(nested, "x")
    commit(nested)
    tree = read_source_tree(work_tree)
    assert names(tree) == [".gitmodules", "own"]
    assert [text.partition(":")[0] for text in tree.left_out] == ["nested", "other"]


def test_links_stay_links_and_those_that_leave_are_left_out(
    work_tree: Path, tmp_path: Path
) -> None:
    write(work_tree, "a/file")
    write(tmp_path, "outside")
    for name, target in {
        "inside": "a/file",
        "a/up": "../a",
        "dangling": "nowhere",
        "absolute": str(work_tree / "a"),
        "leaves": "../outside",
        "a/by another": "up/../../outside",
        "by its name": f"../{work_tree.name}/a",
        "by absolute": "absolute/file",
    }.items():
        (work_tree / name).symlink_to(target)
    tree = read_source_tree(work_tree)
    assert names(tree) == ["a/file", "a/up", "dangling", "inside"]
    assert [text.partition(":")[0] for text in tree.left_out] == [
        *("a/by another", "absolute", "by absolute", "by its name", "leaves"),
    ]


@pytest.mark.parametrize("in_git", [True, False])
def test_what_a_link_leads_to_and_is_not_taken_is_told(folder: Path, in_git: bool) -> None:
    """The link would lead nowhere on the worker. One that leads nowhere here is as it was."""
    if in_git:
        git(folder, "init", "-q")
    write(folder, "ignored/one", "ignored/two", "part/ignored.bin", "part/taken", "file")
    (folder / ".stadoignore").write_text("ignored\n*.bin\nhidden\nempty\n")
    (folder / "empty").mkdir()
    for name, target in {
        "folder": "ignored",
        "inside": "ignored/one",
        "deep/up": "../part/ignored.bin",
        "hidden": "file",
        "by hidden": "hidden",
        "by folder": "folder/../ignored/two",
        "nothing": "empty",
        "fine": "part",
        "finer": "fine/taken",
        "itself": ".",
        "dotted": ".stadoignore",
        "dangling": "nowhere",
        "circle": "circle",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(target)
    tree = read_source_tree(folder)
    assert "hidden" not in names(tree)
    assert {"folder", "inside", "deep/up", "by hidden"} <= set(names(tree))
    assert sorted(tree.left_out) == [
        "empty: the link nothing leads there",
        "hidden: the link by hidden leads there",
        "ignored/one: the link inside leads there",
        "ignored/two: the link by folder leads there",
        "ignored: the link folder leads there",
        "part/ignored.bin: the link deep/up leads there",
    ]


def test_without_git_all_is_taken_but_what_hardly_anybody_wants(folder: Path) -> None:
    write(
        folder,
        *("a", "b/c", "__pycache__/x.pyc", "b/__pycache__/y.pyc", ".venv/lib/z", ".hidden"),
        *("my-environment/pyvenv.cfg", "my-environment/lib/z", "web/node_modules/x/y"),
    )
    os.mkfifo(folder / "pipe")
    tree = read_source_tree(folder)
    assert names(tree) == [".hidden", "a", "b/c"]
    assert tree.left_out == ["pipe: neither a file nor a link"]
    assert (tree.in_git, tree.commit, tree.changed) == (False, None, [])


@pytest.mark.parametrize("in_git", [False, True])
def test_an_own_list_leaves_out_more_tracked_files_too(folder: Path, in_git: bool) -> None:
    write(folder, "data/big", "keep/data/big", "a.csv", "keep/a.csv", "node_modules/x")
    (folder / ".stadoignore").write_text(
        "/data/\n*.csv\n!keep/*.csv\n# a comment\n!node_modules/\n"
    )
    if in_git:
        git(folder, "init", "-q")
        commit(folder)
        write(folder, "b.csv")
    tree = read_source_tree(folder)
    assert names(tree) == [".stadoignore", "keep/a.csv", "keep/data/big", "node_modules/x"]
    assert tree.changed == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((".env", "A=1"), (".env.production", "A=1"), ("deep/id_rsa", "x"), (".netrc", "x")),
        *((".pypirc", "x"), ("a.p12", "x"), (".aws/credentials", "x"), (".git-credentials", "x")),
        ("server.pem", "-----BEGIN RSA PRIVATE KEY-----\nx"),
        ("server.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nx"),
        ("credentials.json", '{"private_key": "x"}'),
        ("lab-4711.json", '{"private_key": "-----BEGIN PRIVATE KEY-----\\nx"}'),
        (".npmrc", "//registry.npmjs.org/:_authToken=npm_x"),
    ],
)
@pytest.mark.parametrize("in_git", [False, True])
def test_a_file_that_looks_like_a_secret_is_named_unless_it_is_wanted(
    folder: Path, name: str, content: str, in_git: bool
) -> None:
    if in_git:
        git(folder, "init", "-q")
    write(folder, name)
    (folder / name).write_text(content)
    (secret,) = read_source_tree(folder).secrets
    assert secret.startswith(f"{name} (")
    for pattern, taken in (("*", []), (f"!{name}", [name])):
        (folder / ".stadoignore").write_text(f"{pattern}\n.stadoignore\n")
        tree = read_source_tree(folder)
        assert (tree.secrets, names(tree)) == ([], taken)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((".env.example", "A="), ("id_rsa.pub", "x"), ("environment", "x"), ("a.env.md", "x")),
        ("ca.pem", "-----BEGIN CERTIFICATE-----\nx"),
        ("credentials.json", '{"url": "x"}'),
        ("package.json", '{"private_key": ""}'),
        (".npmrc", "registry=https://registry.npmjs.org\n_authToken=${NPM_TOKEN}"),
    ],
)
def test_what_only_resembles_a_secret_is_taken(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    assert read_source_tree(folder).secrets == []


def test_the_largest_files_are_told_with_their_sizes(folder: Path) -> None:
    for size in range(1, 15):
        (folder / f"{size:02}").write_bytes(b"x" * size)
    tree = read_source_tree(folder)
    assert tree.bytes == sum(range(1, 15))
    assert tree.largest(2) == [("14", 14), ("13", 13)]


def test_a_folder_that_is_none_is_refused(folder: Path) -> None:
    write(folder, "file")
    for name, why in (("absent", "does not exist"), ("file", "is no folder")):
        with pytest.raises(Refused, match=why):
            read_source_tree(folder / name)


def test_where_git_does_not_answer_nothing_is_taken(
    work_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then what is ignored there."""
    write(work_tree, "a")
    (work_tree / ".git" / "index").write_text("nonsense")
    with pytest.raises(Refused, match="index file"):
        read_source_tree(work_tree)
    (work_tree / ".git" / "HEAD").unlink()
    with pytest.raises(Refused, match="not a git repository"):
        read_source_tree(work_tree)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Refused, match="git is not installed"):
        read_source_tree(work_tree)


def test_where_there_is_no_git_at_all_the_folder_is_walked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a")
    monkeypatch.setenv("PATH", "/nowhere")
    assert names(read_source_tree(folder)) == ["a"]


@pytest.mark.parametrize("leads", ["out", "in"])
def test_what_a_link_has_taken_the_place_of_is_deleted(work_tree: Path, leads: str) -> None:
    """git still lists the files of the folder that was there."""
    (work_tree / "data").mkdir()
    (work_tree / "data/x").write_text("mine")
    git(work_tree, "add", "data/x")
    target = work_tree.parent / "elsewhere" if leads == "out" else work_tree / "moved"
    (work_tree / "data").rename(target)
    os.symlink(os.path.relpath(target, work_tree), work_tree / "data")
    tree = read_source_tree(work_tree)
    assert b"data/x" not in tree.sizes
    assert (b"data" in tree.sizes) is (leads == "in")
    packed = pack(work_tree, tree.sizes, work_tree.parent / "packed")
    (work_tree.parent / "unpacked").mkdir()
    limits = {"files_max": packed.files, "bytes_max": packed.bytes}
    unpacked = unpack(work_tree.parent / "packed", work_tree.parent / "unpacked", **limits)
    assert unpacked == packed


def test_below_a_repository_that_is_broken_nothing_is_taken(folder: Path) -> None:
    """Nobody knows what is ignored there."""
    (folder / ".git").write_text("gitdir: /nowhere/x\n")
    (folder / "sub").mkdir()
    with pytest.raises(Refused) as error:
        read_source_tree(folder / "sub")
    assert error.value.code == "workdir_unreadable"


@pytest.mark.parametrize("line", ["!", "[z-a]"])
def test_a_line_that_is_no_pattern_is_named(folder: Path, line: str) -> None:
    (folder / ".stadoignore").write_text(f"*.log\n{line}\n")
    with pytest.raises(Refused, match="line 2") as error:
        read_source_tree(folder)
    assert error.value.code == "ignore_file_unreadable"


def test_a_mark_of_the_byte_order_is_no_part_of_a_pattern(folder: Path) -> None:
    (folder / ".stadoignore").write_bytes(b"\xef\xbb\xbfbig.bin\n")
    (folder / "big.bin").write_text("x")
    assert b"big.bin" not in read_source_tree(folder).sizes
