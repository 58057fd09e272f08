from __future__ import annotations

from tests.cli.conftest import environment, stado, world

__all__ = ["environment", "stado", "world"]
