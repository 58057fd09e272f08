"""One command as many jobs."""

from __future__ import annotations

import pytest

from stado.core.arrays import make_array, parse_array
from stado.core.spec import Spec, make_request
from stado.errors import Refused


@pytest.mark.parametrize(
    ("text", "indices", "at_a_time"),
    [
        ("0-3", [0, 1, 2, 3], None),
        ("0-9:4", [0, 4, 8], None),
        ("7,1,3", [1, 3, 7], None),
        ("0-2,10-11%2", [0, 1, 2, 10, 11], 2),
        (" 5%1 ", [5], 1),
    ],
)
def test_numbers_of_an_array(text: str, indices: list[int], at_a_time: int | None) -> None:
    array = parse_array(text)
    assert (array.indices, array.at_a_time) == (indices, at_a_time)


@pytest.mark.parametrize("text", ["", "a", "0-9:0", "1,,2", "%5", "9999999999", "-1"])
def test_what_names_no_numbers_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="names no numbers: write 0-99, 0-99:10"):
        parse_array(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3-1", "has '3-1', which counts down: write the smaller number first"),
        ("0-3%0", "lets no job run at a time: state %1 or more behind it, or none"),
        ("0-1000000", "is 1,000,001 jobs, and 100,000 at most are taken: split it"),
    ],
)
def test_numbers_that_cannot_be_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_array(text)
    assert str(refused.value).endswith(f"--array {text!r} {why}")


def test_a_number_stands_once() -> None:
    with pytest.raises(Refused, match="names a number twice"):
        parse_array("0-5,3")


def test_each_job_has_its_number_and_its_command() -> None:
    request = make_array("run {index} of {index}", parse_array("4,6%2"), Spec(command="", cpu=2))
    specs = request.specs()
    assert [spec.command for spec in specs] == ["run 4 of 4", "run 6 of 6"]
    places = [spec.array for spec in specs]
    assert [(one.index, one.at_a_time) for one in places if one] == [(4, 2), (6, 2)]
    assert request.batch
    some = request.part([2])
    assert [(spec.command, spec.array) for spec in some.specs()] == [("run 6 of 6", places[1])]


def test_arrays_that_differ_in_numbers_or_throttle_are_other_requests() -> None:
    shared = Spec(command="")
    digests = {
        make_array("run", parse_array(text), shared).digest() for text in ("0-1", "0-1%1", "1-2")
    }
    digests.add(make_request(["run", "run"], shared, batch=True).digest())
    assert len(digests) == 4


def test_an_array_has_no_more_jobs_than_a_batch() -> None:
    with pytest.raises(Refused, match="is 100,001 jobs, and 100,000 at most are taken"):
        make_array("run", parse_array("0-99999,100000"), Spec(command=""))
