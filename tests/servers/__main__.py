"""Runs a server: alone until Ctrl-C, or for as long as a command takes.

python -m tests.servers seaweedfs
python -m tests.servers fake-gcs --for-command make demo
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from tests.servers.catalogue import SERVERS
from tests.servers.process import Server, ServerFailed

BUCKET = "stado-demo"


def client_environment(server: Server) -> Mapping[str, str]:
    """What a command needs to reach the server: the SDK's variables, and where the store is."""
    return {
        **server.environment,
        "STADO_STORE": f"{server.scheme}://{BUCKET}",
        "STADO_ENDPOINT": server.endpoint,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers")
    parser.add_argument("server", choices=sorted(SERVERS))
    parser.add_argument("--for-command", nargs=argparse.REMAINDER, metavar="CMD")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with SERVERS[options.server]() as server:
            server.make_bucket(BUCKET)
            environment = client_environment(server)
            if options.for_command:
                return _run(options.for_command, environment)
            print(f"endpoint={server.endpoint}")
            for name, value in environment.items():
                print(f"{name}={value}")
            sys.stdout.flush()
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 130
    except ServerFailed as error:
        print(error, file=sys.stderr)
        return 1


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """On an interruption the command has had the same signal; it gets a moment to end."""
    process = subprocess.Popen(argv, env={**os.environ, **environment})
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
