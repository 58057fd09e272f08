"""Which container images may be named."""

from __future__ import annotations

import msgspec
import pytest

from stado.core.documents import from_plain
from stado.core.images import has_digest, image_flaw
from stado.core.order import Needs, needs_of
from stado.core.spec import Spec, make_request
from stado.errors import Refused

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "image",
    [
        "ubuntu",
        "python:3.12-slim",
        "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime",
        "ghcr.io/lab/train:v1.2_rc",
        "localhost:5000/a/b-c/d__e.f:1",
        "[::1]:5000/a",
        "Registry.Example.org/lab/train",
        f"python@{DIGEST}",
        f"123456789012.dkr.ecr.eu-central-1.amazonaws.com/lab:1@{DIGEST}",
        "a" * 512,
    ],
)
def test_an_image_that_an_engine_could_look_for_is_taken(image: str) -> None:
    assert image_flaw(image) is None
    assert from_plain(Spec, {"command": "x", "image": image}).image == image


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("", "1 to 512 characters"),
        ("a" * 513, "1 to 512 characters"),
        ("--privileged", "begins with '-'"),
        ("a b", "a blank or a control character"),
        ("a\nb", "a blank or a control character"),
        ("a\x1b[2J", "a blank or a control character"),
        ("https://ghcr.io/lab/x", "without https://"),
        ("lab/Train", "in small letters"),
        ("a:b:c", "none that an engine could look for"),
        ("a@sha256:12", "none that an engine could look for"),
        ("a/../b", "none that an engine could look for"),
        ("/a", "none that an engine could look for"),
        ("a$(reboot)", "none that an engine could look for"),
        ("a,target=/", "none that an engine could look for"),
    ],
)
def test_what_cannot_be_an_image_is_refused_with_value_and_remedy(image: str, told: str) -> None:
    with pytest.raises(Refused, match="registry/path@sha256") as refusal:
        make_request(["x"], Spec(command="", image=image), batch=False)
    assert refusal.value.code == "image_invalid"
    assert repr(image) in refusal.value.text
    assert told in refusal.value.text
    with pytest.raises(msgspec.ValidationError):
        from_plain(Spec, {"command": "x", "image": image})


def test_a_digest_is_told_from_a_tag() -> None:
    assert has_digest(f"a@{DIGEST}")
    assert has_digest(f"a:1@{DIGEST}")
    assert not has_digest("a:sha256")
    assert not has_digest(DIGEST)


def test_a_working_folder_does_not_take_the_place_of_the_whole_image() -> None:
    for folder in ("/", "//"):
        with pytest.raises(Refused, match="would lie over all of the image"):
            make_request(["x"], Spec(command="", image="a", host_dir=folder), batch=False)
    make_request(["x"], Spec(command="", image="a", host_dir="/srv"), batch=False)


def test_a_job_without_an_image_is_the_request_that_it_was() -> None:
    plain = make_request(["x"], Spec(command=""), batch=False)
    assert plain.digest() == make_request(["x"], Spec(command="", image=None), batch=False).digest()
    assert plain.digest() != make_request(["x"], Spec(command="", image="a"), batch=False).digest()


def test_a_job_with_an_image_says_so_in_its_entry() -> None:
    """Hosts of an earlier version do not know the letter, and leave it alone."""
    assert needs_of(Spec(command="", image="a")) == Needs(1000, 1024, image=True)
    assert needs_of(Spec(command="", image="a")).encode() == "c1000.m1024.i1"
