"""Which unit of systemd answers for a process."""

from __future__ import annotations

import pytest

from stado.system.units import declared_unit


@pytest.mark.parametrize(
    ("groups", "unit"),
    [
        ("0::/system.slice/web.service\n", "web.service"),
        ("0::/system.slice/web.service/worker-1\n", "web.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/web.service\n", "web.service"),
        ("0::/system.slice/run-u17.scope\n", "run-u17.scope"),
        ("0::/system.slice/docker-0123abcd.scope\n", "docker-0123abcd.scope"),
        ("5:memory:/x\n1:name=systemd:/system.slice/web.service\n0::/\n", "web.service"),
        ("5:memory:/system.slice/web.service\n0::/\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", None),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/vte-spawn-0-1.scope\n", None),
        ("0::/system.slice/stado-agent.service/stado-4711-1\n", None),
        ("0::/system.slice/stado-agent-gpu.service\n", None),
        ("0::/system.slice/stado-agents.service\n", "stado-agents.service"),
        ("0::/system.slice/stado-coordinator.service\n", "stado-coordinator.service"),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_a_unit_that_somebody_declared_is_told_from_what_holds_anything(
    groups: str, unit: str | None
) -> None:
    """R204: jobs of our own agents are in the agent's unit, which does not hold them."""
    assert declared_unit(groups) == unit
