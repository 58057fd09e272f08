"""A process in words, for people who look for it on the host."""

from __future__ import annotations

import os

from stado.ports import ProcessIdentity
from stado.system.identity import find_process

_STATES = {"D": "in uninterruptible sleep", "T": "stopped", "t": "stopped", "Z": "a zombie"}


def describe_process(process: ProcessIdentity) -> str:
    """`process 4711 (python, in uninterruptible sleep)`; an account is named if it is not ours."""
    found = find_process(process.pid)
    if found is None or found.identity != process:
        return f"process {process.pid} (gone)"
    parts = (_name(process.pid), _STATES.get(found.state, ""), _foreign_account(process.pid))
    told = ", ".join(part for part in parts if part)
    return f"process {process.pid} ({told})" if told else f"process {process.pid}"


def _name(pid: int) -> str:
    """A process may call itself anything: only what can be shown is."""
    name = _read(pid, "comm").removesuffix("\n")
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _foreign_account(pid: int) -> str:
    for line in _read(pid, "status").splitlines():
        if line.startswith("Uid:"):
            uid = int(line.split()[1])
            return "" if uid == os.getuid() else f"uid {uid}"
    return ""


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
