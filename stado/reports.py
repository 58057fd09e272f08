"""What a command reports to its supervisor while it runs: files in the folder `STADO_REPORT_DIR`,
by names that both sides know.
"""

from __future__ import annotations

REFUSAL_NAME = "refusal.txt"
"""Why the job refuses to go on, in words. It counts only beside the exit code below."""

REFUSED_EXIT_CODE = 86
"""What a command ends with that refuses; without a reason in the file it is a code like any."""

PROGRESS_NAME = "progress.json"
"""`{"fraction": 0.5, "text": "round 3 of 6"}`, replaced as often as the job likes."""

PROGRESS_TEXT_MAX = 200
"""Characters of it that are shown."""

PROGRESS_WRITTEN_MAX = 4_000
"""Characters that are written: what is secret in them is found before the rest is cut off."""

REPORT_BYTES_MAX = 64 * 1024
"""What a supervisor reads of such a file."""
