"""Real object-store servers on this machine, for tests and demonstrations."""

from tests.servers.catalogue import (
    SERVERS,
    run_fake_gcs,
    run_ministack,
    run_moto,
    run_nanio,
    run_seaweedfs,
)
from tests.servers.process import Server, ServerFailed

__all__ = [
    "SERVERS",
    "Server",
    "ServerFailed",
    "run_fake_gcs",
    "run_ministack",
    "run_moto",
    "run_nanio",
    "run_seaweedfs",
]
