from __future__ import annotations

from tests.search import choose_profile

choose_profile()
