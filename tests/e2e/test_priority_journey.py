"""The program itself, on a journey through priorities: `report.json` tells of each step.

The report stays in `$STADO_JOURNEY_DIR`, or in the test's folder. `$STADO_BIN` is the program
(else the one of this source), `$STADO_TEST_SOURCE_REVISION` what it was made of (else git is
asked), and `$STADO_TEST_PRIORITY_NEGATIVE` the negative number that is tried.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.e2e.journey import Journey, report_folder

LARGEST = 2**63 - 1
BEYOND_DECIMALS = 10**12


def travel(journey: Journey) -> None:
    negative = os.environ.get("STADO_TEST_PRIORITY_NEGATIVE", "-3")
    journey.facts["version"] = journey.answer("version")
    journey.stado("init")
    plain = journey.submit("plain")
    default = journey.answer("job", "show", plain)["priority"]
    journey.facts["default_priority"] = default
    assert default == 0
    large = journey.submit("large", "--priority", str(BEYOND_DECIMALS))
    largest = journey.submit("largest", "--priority", str(LARGEST))
    assert journey.order() == [(LARGEST, largest), (BEYOND_DECIMALS, large), (0, plain)]

    promoted = journey.answer("job", "set-priority", plain, str(LARGEST - 1))
    assert (promoted["from"], promoted["to"]) == (default, LARGEST - 1)
    demoted = journey.answer("job", "set-priority", largest, "1")
    assert (demoted["from"], demoted["to"], demoted["changed_now"]) == (LARGEST, 1, True)
    journey.facts["order"] = journey.order()
    assert journey.order() == [(LARGEST - 1, plain), (BEYOND_DECIMALS, large), (1, largest)]

    refused = journey.stado("job", "set-priority", plain, negative, code=2)
    assert refused["stderr"] == f"stado: job priority {negative} must be nonnegative\n"
    refused = journey.stado("submit", "--run-id", "no", "--priority", negative, "true", code=2)
    assert refused["stderr"] == f"stado: priority {negative} must be nonnegative\n"

    journey.stado("cancel", "all", "--yes")
    refusal = journey.answer("job", "set-priority", plain, "7", code=2)
    assert (refusal["status"], refusal["refused"]["code"]) == ("cancelled", "job_not_queued")
    journey.facts["final"] = [
        {name: job[name] for name in ("job_id", "status", "priority")}
        for job in journey.answer("jobs")["jobs"]
    ]
    assert {(job["status"], job["priority"]) for job in journey.facts["final"]} == {
        ("cancelled", LARGEST - 1),
        ("cancelled", BEYOND_DECIMALS),
        ("cancelled", 1),
    }
    assert journey.order() == []


def test_jobs_are_promoted_and_demoted_by_the_program_itself(tmp_path: Path) -> None:
    """R141, R142, R143, R144, R145, R147, R151, R152"""
    folder = report_folder("priority", tmp_path)
    journey, passed = Journey(tmp_path / "store"), False
    try:
        travel(journey)
        passed = True
    finally:
        report = journey.report(passed=passed)
        (folder / "report.json").write_text(json.dumps(report, indent=2))
    assert [one["exit_code"] for one in report["commands"]].count(2) == 3
