"""A tree's digest, and which repositories and commits may be named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.repos import commit_flaw, folder_flaw, url_flaw
from stado.core.spec import GitRepo, Snapshot, Spec, differing_fields, make_request
from stado.core.trees import EntryKind, TreeEntry, path_flaw, tree_digest
from stado.errors import Refused

SHA = "0123456789abcdef0123456789abcdef01234567"
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

entries = st.lists(
    st.builds(
        TreeEntry,
        path=st.binary(min_size=1, max_size=8).filter(lambda path: path_flaw(path) is None),
        kind=st.sampled_from(EntryKind),
        sha256=st.sampled_from([NOTHING, "0" * 64]),
    ),
    unique_by=lambda entry: entry.path,
    max_size=5,
)


@given(entries, st.randoms(use_true_random=False))
def test_a_tree_has_one_digest_in_whatever_order_it_was_read(
    tree: list[TreeEntry], random: object
) -> None:
    shuffled = list(tree)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tree_digest(shuffled) == tree_digest(tree)


@given(entries, entries)
def test_different_trees_have_different_digests(
    one: list[TreeEntry], other: list[TreeEntry]
) -> None:
    assert (tree_digest(one) == tree_digest(other)) == (set(one) == set(other))


def test_the_digest_of_a_tree_is_what_the_protocol_says() -> None:
    """Anybody can compute it: printf 'file <sha> a\\0link <sha> b\\0' | sha256sum."""
    a = TreeEntry(b"a", EntryKind.FILE, NOTHING)
    b = TreeEntry(b"b", EntryKind.LINK, NOTHING)
    assert tree_digest([b, a]) == (
        "94295310afce541a66305d581e4321032c3a12f040a30036297c355f12f1d65a"
    )


@pytest.mark.parametrize(
    "path",
    [
        *(b"", b"/a", b"a//b", b"a/", b"./a", b"a/.", b"../a", b"a/../b", b"..", b"a\0b"),
        *(b"x" * 256, b"/".join([b"d" * 200] * 16)),
    ],
)
def test_no_tree_holds_a_path_that_leaves_it_or_that_no_host_can_hold(path: bytes) -> None:
    assert path_flaw(path) is not None


@pytest.mark.parametrize("path", [b"a", b"a/b", b"...", b"\xff\xfe", b"new\nline", b" "])
def test_any_other_path_may_be_in_a_tree(path: bytes) -> None:
    assert path_flaw(path) is None


@pytest.mark.parametrize("commit", [SHA, SHA + SHA[:24]])
def test_a_full_commit_is_exact(commit: str) -> None:
    """R138"""
    assert commit_flaw(commit) is None


@pytest.mark.parametrize(
    ("ref", "why"),
    [
        ("main", "branch or a tag"),
        ("v1.2", "branch or a tag"),
        ("HEAD", "branch or a tag"),
        (SHA[:12], "short"),
        (SHA[:-1], "short"),
        (SHA.upper(), "small letters"),
        ("", "branch or a tag"),
    ],
)
def test_what_may_mean_another_commit_tomorrow_is_refused_with_the_remedy(
    ref: str, why: str
) -> None:
    """R138"""
    with pytest.raises(Refused, match=why) as refused:
        make_request(["x"], _with_repo("https://host/lab.git", ref), batch=False)
    assert "git ls-remote https://host/lab.git" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *("https://host/lab.git", "http://host:8080/a", "ssh://git@host/lab.git", "file:///srv/a"),
        *("git@host:lab/a.git", "host:a", "/srv/git/lab.git", "ssh://host:22/x"),
    ],
)
def test_a_host_fetches_from_urls_and_from_its_own_paths(url: str) -> None:
    """R138"""
    assert url_flaw(url) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://ada:secret@host/a", "password"),
        ("https://token@host/a", "password"),
        ("ssh://git:secret@host/a", "password"),
        ("https://host/a?token=secret", "query"),
        ("--upload-pack=touch /tmp/x", "option"),
        ("ext::sh -c 'touch /tmp/x'", "helper"),
        ("fd::17", "helper"),
        ("http::https://host/a", "helper"),
        ("ftp://host/a", "none of"),
        ("./lab", "absolute"),
        ("../lab", "absolute"),
        ("lab", "absolute"),
        ("", "characters"),
        ("/srv/a\nb", "characters"),
        ("ssh://-oProxyCommand=x/a", "no host"),
        ("-oProxyCommand=x:a", "option"),
        ("https:///a", "no host"),
    ],
)
def test_an_address_that_no_host_should_use_is_refused_and_not_repeated(url: str, why: str) -> None:
    """R138"""
    assert why in str(url_flaw(url))
    with pytest.raises(Refused) as refused:
        make_request(["x"], _with_repo(url, SHA), batch=False)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("folder", ["/etc", "..", "a/../..", ""])
def test_a_folder_stays_in_its_repository(folder: str) -> None:
    assert folder_flaw(folder) is not None
    assert folder_flaw("a/b") is None


def test_a_command_runs_in_one_folder() -> None:
    repo = GitRepo(url="/srv/a", commit=SHA)
    for spec in (
        Spec(command="", repo=repo, host_dir="/srv"),
        Spec(command="", snapshot=_snapshot(), host_dir="/srv"),
        Spec(command="", snapshot=_snapshot(), repo=repo),
    ):
        with pytest.raises(Refused, match="use one of them"):
            make_request(["x"], spec, batch=False)


def test_the_same_files_are_the_same_request_wherever_they_came_from() -> None:
    plain = make_request(["x"], Spec(command=""), batch=False)
    one = make_request(["x"], Spec(command="", snapshot=_snapshot()), batch=False)
    committed = _snapshot().evolve(commit=SHA, dirty=True)
    other = make_request(["x"], Spec(command="", snapshot=committed), batch=False)
    assert one.digest() == other.digest() != plain.digest()


def test_other_files_are_another_request_and_both_are_named() -> None:
    one = make_request(["x"], Spec(command="", snapshot=_snapshot("1")), batch=False)
    other = make_request(["x"], Spec(command="", snapshot=_snapshot("2")), batch=False)
    assert differing_fields(one, other) == [
        "snapshot: '111111111111' was submitted, now '222222222222'"
    ]


def _with_repo(url: str, commit: str) -> Spec:
    return Spec(command="", repo=GitRepo(url=url, commit=commit))


def _snapshot(digit: str = "1") -> Snapshot:
    return Snapshot(digest=digit * 64, files=1, bytes=1)
