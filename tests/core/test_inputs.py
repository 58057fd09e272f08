"""What can be named as an input, and what is refused, with the remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.inputs import (
    JobOutput,
    ObjectPlace,
    PinnedObject,
    PublishedArtifact,
    Scheme,
    Wanted,
    parse_artifact_name,
    parse_place,
    parse_wanted,
)
from stado.core.spec import INPUTS_MAX, Input, Spec, check_inputs, differing_fields, make_request
from stado.errors import Misconfigured, Refused
from stado.storage.keys import check_key

DIGEST = "ab" * 32
AT = f"#sha256={DIGEST}"


def pinned(name: str, sha256: str = DIGEST) -> Input:
    return Input(name=name, source="artifacts/versions/digits@000001.json", sha256=sha256)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("last", JobOutput("last", "")),
        ("a-run@home/deep/er/", JobOutput("a-run@home", "deep/er")),
        ("artifact:digits", PublishedArtifact("digits", None, "")),
        ("artifact:digits@3", PublishedArtifact("digits", 3, "")),
        ("artifact:digits@3/model/w", PublishedArtifact("digits", 3, "model/w")),
        (f"s3://lab/a/b{AT}", PinnedObject("s3://lab/a/b", DIGEST)),
        (f"gs://lab/b{AT.upper().replace('SHA', 'sha')}", PinnedObject("gs://lab/b", DIGEST)),
        (f"file:///data/x%20y{AT}", PinnedObject("file:///data/x%20y", DIGEST)),
        (f"https://host:8443/x{AT}", PinnedObject("https://host:8443/x", DIGEST)),
    ],
)
def test_a_reference_is_what_it_looks_like(text: str, reference: object) -> None:
    assert parse_wanted(f"data={text}") == Wanted("data", reference)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("data", "input_invalid", "write NAME=REFERENCE"),
        ("data=", "input_invalid", "write NAME=REFERENCE"),
        ("../x=last", "input_invalid", "'../x'"),
        (".x=last", "input_invalid", "letter or digit first"),
        ("x/y=last", "input_invalid", "'x/y'"),
        ("data=last/../x", "path_invalid", "input data: path '../x'"),
        ("data=last//x", "path_invalid", "'/x'"),
        ("data=artifact:di gits", "artifact_invalid", "'di gits'"),
        ("data=artifact:digits@newest", "artifact_invalid", "versions are 1, 2, 3"),
        ("data=artifact:digits@0", "artifact_invalid", "'0'"),
        ("data=policy_x:best", "input_checkpoint", "input data: 'policy_x:best'"),
        ("data=s3://lab/x", "input_unpinned", "s3://lab/x#sha256=DIGEST (`sha256sum x`"),
        ("data=s3://lab/x#sha256=abc", "input_unpinned", "states no SHA-256"),
        (f"data=s3://lab{AT}", "address_invalid", "must be s3://bucket/key"),
        (f"data=s3://lab/a//b{AT}", "address_invalid", "Copy the object to another key"),
        (f"data=s3://lab/.a{AT}", "address_invalid", "no dot in front"),
        (f"data=s3://me:secret@lab/a{AT}", "address_invalid", "must be s3://bucket/key"),
        (f"data=ftp://lab/a{AT}", "address_invalid", "use s3://bucket/key"),
        (f"data=https://a..b/x{AT}", "address_invalid", "that is no https:// address"),
        (f"data=https://a:b/x{AT}", "address_invalid", "that is no https:// address"),
        (f"data=http://lab/a{AT}", "address_invalid", "https://host/path"),
        (f"data=https://me:secret@host/a{AT}", "address_invalid", "'https://host/a'"),
        (f"data=https://host/a?sig=secret{AT}", "address_invalid", "'https://host/a'"),
        (f"data=https://host/{AT}", "address_invalid", "names no file"),
        (f"data=https://host/%2e%2e{AT}", "address_invalid", "names no file"),
        (f"data=file://host/a{AT}", "address_invalid", "three slashes"),
        (f"data=file:///data/{AT}", "address_invalid", "names no file"),
        (f"data=file:///a%00b{AT}", "address_invalid", "names no file"),
    ],
)
def test_what_cannot_be_one_is_refused_by_name_and_without_secrets(
    text: str, code: str, told: str
) -> None:
    with pytest.raises(Refused) as refused:
        parse_wanted(text)
    assert refused.value.code == code
    assert told in refused.value.text
    assert "secret" not in refused.value.text.partition("which may be")[0]


def test_an_address_says_where_the_object_is_and_what_its_file_is_called() -> None:
    assert parse_place("s3://lab/a/b.csv") == ObjectPlace(
        Scheme.S3, "b.csv", bucket="lab", key="a/b.csv"
    )
    assert parse_place("file:///data/x%20y") == ObjectPlace(Scheme.FILE, "x y", path="/data/x y")
    assert parse_place("https://host/d/x%20y").name == "x y"


@given(st.text(st.characters(max_codepoint=255), min_size=1, max_size=8))
def test_a_key_of_another_bucket_is_taken_where_every_store_could_hold_it(key: str) -> None:
    try:
        parse_place(f"s3://lab/{key}")
    except Refused:
        if "?" not in key:
            with pytest.raises(Misconfigured):
                check_key(key)
    else:
        check_key(key)


def test_an_artifact_has_a_version_or_the_newest() -> None:
    assert parse_artifact_name("digits@12") == ("digits", 12)
    assert parse_artifact_name("digits") == ("digits", None)


def test_a_name_is_given_once_and_no_more_than_fit_a_record() -> None:
    check_inputs([pinned(f"n{number}") for number in range(INPUTS_MAX)])
    with pytest.raises(Refused, match="input a is given twice"):
        check_inputs([pinned("a"), pinned("b"), pinned("a")])
    with pytest.raises(Refused, match="at most 100"):
        check_inputs([pinned(f"n{number}") for number in range(INPUTS_MAX + 1)])


def test_an_input_makes_another_request_and_none_does_not() -> None:
    plain = make_request(["x"], Spec(command=""), batch=False)
    one = make_request(["x"], Spec(command="", inputs=[pinned("a")]), batch=False)
    other = make_request(["x"], Spec(command="", inputs=[pinned("a", "cd" * 32)]), batch=False)
    assert len({plain.digest(), one.digest(), other.digest()}) == 3
    assert make_request(["x"], Spec(command="", inputs=[]), batch=False).digest() == plain.digest()
    (told,) = differing_fields(one, other)
    assert told.startswith("input a: 'artifacts/versions/digits@000001.json sha256=abab")
