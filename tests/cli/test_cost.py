"""`stado cost …`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stado.core import keys
from stado.core.records import HostOrders
from stado.core.states import Verdict
from stado.jobs.ledger import Compaction, Pace
from tests.cli.conftest import USER, Program, World, report
from tests.cli.test_usage import note

PRICE: dict[str, Any] = {
    "price_micro": 4_000_000,
    "part_micro": 500_000,
    "verdict": Verdict.COMPLETED,
    "model": "resnet",
    "hardware": "1x a100-sxm4-80gb",
    "consumer": "local@lab",
}


def test_what_jobs_cost_by_what_they_ran_on(stado: Program, world: World) -> None:
    """R223: with what has no price beside it."""
    note(world, 0, hours=3.0, **PRICE)
    note(world, 1, hours=1.0, **{**PRICE, "verdict": Verdict.FAILED})
    note(world, 2, hours=2.0, hardware="box", verdict=Verdict.COMPLETED)
    result = stado("cost", "report")
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "TARGET COST A JOB COMPLETED OF IT FAILED TIME UNPRICED",
        "1x a100-sxm4-80gb $8.00 $8.00 1 $2.00 4h 0",
        "box unpriced - 1 - 2h 1 epoch, 2h",
        "total $8.00 - 2 $2.00 6h 1 epoch, 2h",
    ]
    assert "1 epoch, 2h have no price and are in no sum" in result.stderr
    assert "Amazon EC2 list prices" in result.stderr
    assert "of 2024-12-31" in result.stderr


def test_the_answer_is_the_same_once_it_is_compacted(stado: Program, world: World) -> None:
    """R223"""
    for number in range(4):
        note(world, number, hours=1.0, days_ago=number, **PRICE)
    before = stado.json("cost", "report", "--by", "day")
    Compaction(world.repo, by="c", pace=Pace(names_min=1)).turns(60)
    after = stado.json("cost", "report", "--by", "day")
    assert (before["groups"], before["total"]) == (after["groups"], after["total"])
    assert after["total"]["cost_usd"] == 8.0
    assert after["prices"]["as_of"] == "2024-12-31"


def test_prices_of_ones_own(stado: Program, world: World, tmp_path: Path) -> None:
    """R223: from a dated file; the ones that come with stado do not count then."""
    note(world, 0, hours=2.0, hardware="1x a10g", gpus=1, share_milli=500)
    assert stado.json("cost", "report")["total"]["cost_usd"] == 1.006
    prices = tmp_path / "prices.toml"
    prices.write_text('as_of = 2026-03-01\nsource = "us"\n[cards]\na10g = 3\n')
    told = stado.json("cost", "report", "--prices", str(prices))
    assert told["total"]["cost_usd"] == 3.0
    assert told["prices"] == {"as_of": "2026-03-01", "source": "us"}
    prices.write_text("as_of = 2026-03-01\n")
    assert stado.json("cost", "report", "--prices", str(prices))["total"]["cost_usd"] is None


def test_what_jobs_asked_of_the_store_is_beside_what_they_cost(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R260: in columns of its own where a bucket was asked, with what is not known of it."""
    asked = {"dear": 2_000, "cheap": 5_000, "received_bytes": 3_000_000, "sent_bytes": 500}
    note(world, 0, hours=3.0, **PRICE, **asked)
    note(world, 1, hours=1.0, **PRICE)
    result = stado("cost", "report", "--by", "job")
    titles, first, second, total = (line.split() for line in result.stdout.splitlines())
    assert titles[-3:] == ["STORE", "REQUESTS", "TRAFFIC"]
    assert first[-4:] == ["$0.01", "7,000", "3.0", "MB"]
    assert second[-3:] == ["unknown"] * 3
    assert total[1] == "$8.00"
    assert "2,000 writes and listings, 5,000 reads, costs $0.01; 3.0 MB rec" in result.stderr
    assert "what hosts received is counted as free" in result.stderr
    assert "what 1 epoch asked of the store is not known" in result.stderr
    assert stado.json("cost", "report")["total"]["store"] == {
        "cost_usd": 0.012,
        "writes": 2_000,
        "reads": 5_000,
        "received_bytes": 3_000_000,
        "sent_bytes": 500,
        "unknown_epochs": 1,
    }
    prices = tmp_path / "prices.toml"
    prices.write_text("as_of = 2026-03-01\n[storage]\nput_thousand = 1\nget_thousand = 0\n")
    told = stado.json("cost", "report", "--prices", str(prices))["total"]
    assert told["store"]["cost_usd"] == 2.0


def test_a_directory_has_no_price_and_no_columns(stado: Program, world: World) -> None:
    """R260"""
    note(world, 0, hours=3.0, **PRICE, dear=0, cheap=0, received_bytes=0, sent_bytes=0)
    assert "STORE" not in stado("cost", "report").stdout
    assert stado.json("cost", "report")["total"]["store"]["cost_usd"] == 0.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "as_of is None: state the day"),
        ("as_of = 3", "as_of is 3"),
        ("as_of = 2026-03-01\n[cards]\na10g = -1", "cards.a10g is -1: state dollars"),
        ("as_of = 2026-03-01\n[cards]\na10g = true", "cards.a10g is True"),
        ("as_of = 2026-03-01\ncards = 3", "cards is no table"),
        ("as_of = 2026-03-01\ncrads = 3", "it has 'crads'"),
        ("as_of = 2026-03-01\n[storage]\nput = 3", "storage has 'put'; known are egress_gb"),
        ("as_of =", "is no TOML"),
    ],
)
def test_a_file_of_prices_that_cannot_be_meant_is_refused(
    stado: Program, world: World, tmp_path: Path, text: str, why: str
) -> None:
    """R223: with the value, and what to state."""
    assert world
    prices = tmp_path / "prices.toml"
    prices.write_text(text)
    result = stado("cost", "report", "--prices", str(prices))
    assert result.exit_code == 2
    assert why in result.stderr
    assert str(prices) in result.stderr.replace("\n", "")


def test_a_batch_is_estimated_by_what_its_model_cost(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R224"""
    for number in range(5):
        note(world, number, hours=1.0 + number, **PRICE)
    commands = tmp_path / "commands.txt"
    commands.write_text("train 1\n# none\n\ntrain 2\n")
    result = stado("cost", "estimate", str(commands), "--model", "resnet")
    assert result.stdout.splitlines() == [
        "TARGET               COST           SPREAD  A JOB  TIME A JOB  OBSERVED",
        "1x a100-sxm4-80gb  $12.00  $5.60 to $18.40  $6.00          3h         5",
    ]
    assert "2 jobs of resnet" in result.stderr
    told = stado.json("cost", "estimate", str(commands), "--model", "resnet")
    assert (told["jobs"], told["targets"][0]["cost_usd"]) == (2, 12.0)


def test_an_estimate_without_evidence_is_refused(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R224"""
    note(world, 1, hours=1.0, model="resnet", hardware="cpu", verdict=Verdict.COMPLETED)
    commands = tmp_path / "commands.txt"
    commands.write_text("train 1\n")
    result = stado("cost", "estimate", str(commands), "--model", "resnet")
    assert result.exit_code == 2
    assert "no cost for jobs of resnet: no completed run of it has a price" in result.stderr


def test_who_bears_what_and_which_hosts_idle(stado: Program, world: World) -> None:
    """R225: an idle host costs its price less what its jobs bore."""
    note(world, 0, hours=6.0, **PRICE)
    note(world, 1, hours=2.0, **{**PRICE, "user": "eve"})
    report(world, "local@lab", price_per_hour=4.0)
    told = stado.json("cost", "allocation")
    assert [(one["user"], one["cost_usd"], one["share"]) for one in told["users"]] == [
        (USER, 12.0, 0.75),
        ("eve", 4.0, 0.25),
    ]
    (host,) = told["hosts"]
    assert (host["worker"], host["last_day_usd"], host["idle_usd"]) == ("local@lab", 96.0, 80.0)
    shown = stado("cost", "allocation")
    assert "hosts: what a day would cost at their price" in shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[1].split() == [USER, "$12.00", "75.0", "%", "0"]
    assert lines[-1].split() == ["local@lab", "$4", "$96.00", "$80.00"]


def test_hosts_are_looked_at_for_a_day_whatever_time_is_asked_for(
    stado: Program, world: World
) -> None:
    """R225"""
    note(world, 0, hours=6.0, days_ago=0.25, **PRICE)
    report(world, "local@lab", price_per_hour=4.0)
    told = stado.json("cost", "allocation", "--since", "1h")
    assert (told["users"], told["hosts"][0]["idle_usd"]) == ([], 84.0)


def test_what_stands_out_and_what_would_save(stado: Program, world: World) -> None:
    """R225"""
    for number in range(6):
        note(world, number, hours=10.0 if number == 5 else 1.0, **PRICE)
    for number in range(6, 9):
        note(world, number, hours=1.0, **{**PRICE, "price_micro": 1_000_000, "hardware": "spot"})
    (found,) = stado.json("cost", "anomalies")["anomalies"]
    assert (found["cost_usd"], found["median_usd"]) == (20.0, 2.0)
    (saving,) = stado.json("cost", "savings")["savings"]
    assert (saving["cheapest"], saving["jobs"], saving["saving_usd"]) == ("spot", 6, 9.0)
    assert "$20.00" in stado("cost", "anomalies").stdout
    assert "$9.00" in stado("cost", "savings").stdout


def test_this_month_in_the_end(stado: Program, world: World) -> None:
    """R225"""
    note(world, 0, hours=7.0, days_ago=1, **PRICE)
    told = stado.json("cost", "forecast")
    assert told["per_day_usd"] == pytest.approx(2.0, rel=0.5)
    assert told["cost_usd"] == pytest.approx(
        told["spent_usd"] + told["per_day_usd"] * told["days_left"], abs=0.02
    )
    assert stado("cost", "forecast").stdout.startswith(told["month"])
    assert stado("cost", "forecast", "--since", "3d").exit_code == 2


def test_a_host_is_given_a_price(stado: Program, world: World) -> None:
    """R223: over what its agent was started with, until it is taken back."""
    report(world, "local@lab")
    result = stado("hosts", "set", "local@lab", "--price-per-hour", "2.40")
    assert "local@lab costs $2.4 an hour" in result.stdout + result.stderr
    key = keys.host_orders("local@lab")
    assert world.repo.read(HostOrders, key).value.price_per_hour == 2.4
    assert stado.json("hosts", "local@lab")["orders"]["price_per_hour"] == 2.4
    assert stado("hosts", "set", "local@lab", "--price-per-hour", "default").exit_code == 0
    assert world.repo.read(HostOrders, key).value.price_per_hour is None
    for wrong in ("0", "-1", "much", "nan", "1e9"):
        result = stado("hosts", "set", "local@lab", "--price-per-hour", wrong)
        assert result.exit_code == 2
        assert "is no price" in result.stderr
