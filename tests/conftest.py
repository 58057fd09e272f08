from __future__ import annotations

import gc
import signal

from tests.search import choose_profile

choose_profile()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it runs in the background, and programs that are started here would
    # inherit it: no test could interrupt one.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Thousands of tests are there until the end: no collection has to look at them."""
    gc.collect()
    gc.freeze()
