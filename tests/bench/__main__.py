"""`python -m tests.bench [--quick]`: measures, prints, and fails when a limit is missed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from stado.settings import Settings
from tests.bench import (
    history,
    log_price,
    masking,
    placement,
    starting,
    supervision,
    throughput,
    transfers,
)
from tests.bench.figures import Figure, show
from tests.servers import run_seaweedfs


def main() -> int:
    quick = "--quick" in sys.argv
    jobs, batch, bucket_jobs = (200, 1000, 50) if quick else (1000, 10_000, 600)
    figures: list[Figure] = []

    def part(title: str, measured: list[Figure]) -> None:
        show(title, measured)
        figures.extend(measured)

    with tempfile.TemporaryDirectory(prefix="stado-bench-") as name:
        folder = Path(name)
        part("Starting", starting.measure(folder))
        part("Batch on a directory", throughput.measure_batch(folder, batch))
        part("Jobs on a directory", throughput.measure_directory(folder, jobs))
        part("Price of an hour of a talkative job", log_price.measure(folder / "price"))
        part("Secrets in what is printed", masking.measure())
        part("Placement", placement.measure(folder / "placement", quick=quick))
        history_jobs = 2_000 if quick else 100_000
        part(
            "Many jobs that have ended, on a directory",
            history.measure(folder / "history", jobs=history_jobs),
        )
        part("Supervision", supervision.measure(folder, quick=quick))
        with run_seaweedfs() as server:
            server.make_bucket("bench")
            settings = Settings("s3://bench/queue", server.endpoint)
            environment = dict(server.environment)
            os.environ.update(environment)
            part(
                "Jobs on SeaweedFS",
                throughput.measure_bucket(folder, settings, environment, bucket_jobs),
            )
            part(
                "Many jobs that have ended, on SeaweedFS",
                history.measure(
                    folder / "history-bucket",
                    jobs=history_jobs,
                    settings=Settings("s3://bench/history", server.endpoint),
                    environment=environment,
                ),
            )
            large_mib, small_files = (64, 100) if quick else (256, 400)
            part(
                "What jobs leave, on SeaweedFS",
                transfers.measure(
                    folder / "transfers", server, large_mib=large_mib, small_files=small_files
                ),
            )
    missed = [figure.name.strip() for figure in figures if not figure.met]
    sys.stdout.write(f"\n{len(figures)} figures, {len(missed)} limits missed\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
