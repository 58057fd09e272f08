"""Makes the picture of README.md anew: `python -m tests.docs.pictures`.

Commands are typed into a shell on a real terminal, and what that shows is drawn as it is. Other
names than docs/terminal.svg can be given, with a theme: `python -m tests.docs.pictures out.svg
light`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.picture import svg
from tests.docs.session import Session
from tests.docs.terminal import ROOT, Terminal

COLUMNS = 100
PICTURE = ROOT / "docs/terminal.svg"

_TITLE = "ada@lab: ~/spirals"

_TRAINING = """\
import sys, time
import stado

seed = int(sys.argv[-1])
for step in range(1, 41):
    stado.progress(step / 40, f"round {step} of 40")
    time.sleep((0.01, 0.05, 0.02, 0.9, 0.6)[seed - 1])
    if seed == 3 and step == 20:
        sys.exit("loss is nan")
"""

_PREPARED = (
    "stado init ./queue --add-context lab --lease-seconds 8",
    "stado up > up.log 2>&1 &\nuntil stado hosts 2>&1 | grep -q working; do sleep 0.2; done",
    "stado submit --run-id large --gpus a100:2 'python train.py --large'",
)

_BEGUN = "until test $(stado status | grep -c -e completed -e failed -e %) -ge 5; do sleep 1; done"

SHOWN = (
    "stado submit --run-id sweep --workdir . --array 1-5 --cpu 0.3 'python train.py {index}'",
    "stado status",
    "stado job why large",
    "stado hosts",
)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    theme = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        target.write_text(_drawn(home, theme))
    print(target)


def _drawn(home: Path, theme: str) -> str:
    folder = home / "spirals"
    folder.mkdir()
    (folder / "train.py").write_text(_TRAINING)
    hidden = Terminal(home)
    session = Session(home, folder="spirals", columns=COLUMNS)
    try:
        for command in _PREPARED:
            hidden.run(command, seconds=60)
        for command in SHOWN:
            if command.startswith("stado status"):
                hidden.run(_BEGUN, seconds=60)
            session.type(command)
        lines = session.screen.lines[1:-2]  # The last one is a prompt, with a blank line before it.
        return svg(lines, columns=COLUMNS, title=_TITLE, theme=theme)
    finally:
        session.close()
        hidden.close()


if __name__ == "__main__":
    main()
