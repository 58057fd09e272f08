"""`python -m tests.services`: a Debian of its own in an emulated machine, with systemd as its first
process, on which stado is installed from a wheel and its services are tried, over a reboot.

Takes root, mmdebstrap, qemu-system-x86, e2fsprogs (Debian packages) and a way to Debian's archive
and a package index; some minutes, most of it emulation. What is tried is in `inside.py`. Its lines
`CHECK ok …` and `CHECK FAIL …` are shown as they come; exit code 0 when all were ok and it came to
its end."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSIDE = Path(__file__).with_name("inside.py")
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "udev"),
    *("linux-image-cloud-amd64", "python3", "python3-venv", "util-linux", "login", "passwd"),
    *("procps", "git"),
)
BUILD_SECONDS = 900
RUN_SECONDS = 3600
UNIT = """\
[Unit]
Description=Try stado's services
After=multi-user.target
Wants=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/opt/stado/bin/python /opt/inside.py
StandardOutput=journal+console
StandardError=journal+console
[Install]
WantedBy=graphical.target default.target
"""


def call(*argv: str | Path, seconds: float = BUILD_SECONDS, **options: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, timeout=seconds, **options)  # type: ignore[call-overload]


def build(suite: str, work: Path, parts: list[str]) -> Path:
    """The folder that becomes the machine's disk."""
    root, wheels = work / "root", work / "wheels"
    if not root.exists():
        include = f"--include={','.join(PACKAGES)}"
        call("mmdebstrap", "--quiet", "--variant=minbase", include, suite, root)
    shutil.rmtree(wheels, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "--quiet")
    call(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT)
    wheel = next(wheels.glob("stado-*.whl"))
    call(
        *(*pip, "download", "--dest", wheels, "--only-binary=:all:"),
        *("--python-version", SUITES[suite], "--platform", "manylinux2014_x86_64"),
        *("--platform", "manylinux_2_28_x86_64", "--find-links", wheels, wheel),
    )
    target = root / "opt/wheels"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(wheels, target)
    shutil.rmtree(root / "opt/stado", ignore_errors=True)
    inside = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    call("chroot", root, "python3", "-m", "venv", "/opt/stado", env=inside)
    install = ("/opt/stado/bin/python", "-m", "pip", "--quiet", "install", "--no-index")
    call("chroot", root, *install, "--find-links=/opt/wheels", "stado", env=inside)
    shutil.copy(INSIDE, root / "opt/inside.py")
    (root / "opt/parts").write_text(" ".join(parts))
    unit = root / "etc/systemd/system/try.service"
    unit.write_text(UNIT)
    wanted = unit.parent / "default.target.wants"
    wanted.mkdir(exist_ok=True)
    for name in ("try.service",):
        link = wanted / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"/etc/systemd/system/{name}")
    return root


def boot(root: Path, work: Path, *, kvm: bool) -> int:
    """0 when all that was tried was ok."""
    disk = work / "disk.img"
    disk.unlink(missing_ok=True)
    with disk.open("wb") as file:
        file.truncate(4 * 1024**3)
    call("mke2fs", "-q", "-F", "-t", "ext4", "-d", root, disk)
    kernel, initrd = (next((root / "boot").glob(f"{name}-*")) for name in ("vmlinuz", "initrd.img"))
    accelerator = ("-enable-kvm", "-cpu", "host") if kvm else ("-accel", "tcg,thread=multi")
    process = subprocess.Popen(
        [
            *("qemu-system-x86_64", *accelerator, *([] if kvm else ["-cpu", "max"])),
            *("-m", "2048", "-smp", "2", "-nic", "none", "-display", "none"),
            *("-serial", "stdio", "-monitor", "none"),
            *("-kernel", kernel, "-initrd", initrd),
            *("-append", "root=/dev/vda rw console=ttyS0 systemd.show_status=false"),
            *("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        return watch(process, work / "console.log")
    finally:
        process.kill()
        process.wait()


def watch(process: subprocess.Popen[bytes], log: Path) -> int:
    """Reads the console to its end, or until the time is over."""
    import threading

    timer = threading.Timer(RUN_SECONDS, process.kill)
    timer.start()
    failed, ended = False, False
    try:
        assert process.stdout is not None
        with log.open("wb") as kept:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                text = line.decode("utf-8", "replace").strip()
                if "CHECK " in text:
                    print(text[text.index("CHECK ") :], flush=True)
                failed = failed or "CHECK FAIL" in text
                ended = ended or "CHECK end" in text
    finally:
        timer.cancel()
    print(f"the console's log: {log}")
    return 0 if ended and not failed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="trixie")
    parser.add_argument("--work", type=Path, help="Keep what is built here, for the next run.")
    parser.add_argument(
        "--parts", nargs="*", default=[], help="Names in inside.py; installs is the least."
    )
    parser.add_argument("--kvm", action="store_true", help="With the processor's help.")
    options = parser.parse_args()
    missing = [
        name
        for name in ("mmdebstrap", "qemu-system-x86_64", "mke2fs", "chroot")
        if shutil.which(name) is None
    ]
    if missing or os.geteuid() != 0:
        print(f"needs root and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
        return 2
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
        return boot(
            build(options.suite, options.work, options.parts), options.work, kvm=options.kvm
        )
    with tempfile.TemporaryDirectory(prefix="stado-services-") as folder:
        work = Path(folder)
        return boot(build(options.suite, work, options.parts), work, kvm=options.kvm)


if __name__ == "__main__":
    sys.exit(main())
