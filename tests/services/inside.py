"""What is tried in the machine of `python -m tests.services`, as root, at each of its starts.

The stage is in a file: the first start tries what an installed agent and coordinator do, and ends
with a reboot under a running job; the second one sees what became of it."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STADO = "/opt/stado/bin/stado"
STORE = "/srv/queue"
SCRATCH = "/srv/scratch"
STAGE = Path("/srv/stage")
PARTS = Path("/opt/parts")
"""Names of what is tried at the first start; none: all of it."""

AGENT, COORDINATOR = "stado-agent.service", "stado-coordinator.service"
WORK = "/var/lib/stado-agent"


def say(text: str) -> None:
    print(f"CHECK {text}", flush=True)


def check(what: str, ok: object, why: object = "") -> None:
    say(f"ok {what}" if ok else f"FAIL {what}: {' '.join(str(why).split())[:400]}")


def run(
    *argv: str, user: str | None = None, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    prefix: list[str] = []
    if user is not None:
        home = pwd.getpwnam(user).pw_dir
        prefix = ["runuser", "-u", user, "--", "env", f"HOME={home}", f"USER={user}"]
    return subprocess.run(
        [*prefix, *argv], capture_output=True, text=True, timeout=seconds, check=False, cwd="/"
    )


def stado(*argv: str, user: str | None = "stado") -> subprocess.CompletedProcess[str]:
    return run(STADO, *argv, user=user)


def show(unit: str, name: str) -> str:
    return run("systemctl", "show", "-p", name, "--value", unit).stdout.strip()


def wait(condition: Callable[[], object], seconds: float = 240) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(1)
    return False


def submit(run_id: str, command: str, *options: str) -> str:
    done = stado("submit", "--store", STORE, "--run-id", run_id, *options, command)
    if done.returncode:
        check(f"submit {run_id}", False, done.stderr)
    return done.stdout.split()[-1] if done.stdout else run_id


def job(job_id: str) -> dict[str, object]:
    told = stado("job", "show", job_id, "--store", STORE, "--json")
    try:
        found: dict[str, object] = json.loads(told.stdout)
    except ValueError:
        return {"error": told.stderr}
    inner = found.get("job")
    return inner if isinstance(inner, dict) else found


def state(job_id: str) -> object:
    return job(job_id).get("status")


def log(job_id: str) -> str:
    return stado("logs", job_id, "--store", STORE).stdout


def both(result: subprocess.CompletedProcess[str]) -> str:
    return f"{result.returncode} | {result.stdout} | {result.stderr}"


def first() -> None:
    say(f"note systemd {run('systemctl', '--version').stdout.split()[1]}")
    parts = (refusals, installs, units, jobs, adoption, watchdog, of_a_user, before_the_reboot)
    wanted = PARTS.read_text().split()
    for part in parts:
        if not wanted or part.__name__ in wanted:
            part()


def refusals() -> None:
    done = stado("agent", "status", user=None)
    check("status of what is not installed is refused", done.returncode == 2, both(done))
    done = run(STADO, "agent", "install", "--system", "--store", STORE, user="nobody")
    check("the host's is refused to others than root", "as root" in done.stderr, both(done))


def installs() -> None:
    agent = ("agent", "install", "--system", "--store", STORE, "--poll-seconds", "0.5")
    done = stado(*agent, "--no-start", user=None)
    check("an agent is installed", done.returncode == 0 and "wrote" in done.stdout, both(done))
    account = pwd.getpwnam("stado")
    Path(SCRATCH).mkdir()
    Path(STORE).mkdir()
    for folder in (SCRATCH, STORE):
        os.chown(folder, account.pw_uid, account.pw_gid)
    done = stado("init", "--store", STORE, "--lease-seconds", "30")
    check("a deployment is made", done.returncode == 0, both(done))
    done = stado(*agent, user=None)
    check("an agent is started", f"{AGENT} runs" in done.stdout, both(done))
    pid = show(AGENT, "MainPID")
    done = stado(*agent, user=None)
    same = "nothing to change" in done.stdout and show(AGENT, "MainPID") == pid
    check("the same again changes nothing", same, both(done))
    done = stado(*agent, "--label", "zone=a", user=None)
    changed = "+ExecStart" in done.stdout and show(AGENT, "MainPID") != pid
    check("other words are shown and start it anew", changed, both(done))
    done = stado("agent", "install", "--system", "--store", "/srv/other", user=None)
    check("another store is refused", "works on /srv/queue" in done.stderr, both(done))
    done = stado("coordinator", "install", "--system", "--store", STORE, user=None)
    check("a coordinator is installed", "runs (process" in done.stdout, both(done))
    for path in ("/etc/stado/agent.env", "/etc/stado/coordinator.env"):
        found = os.stat(path)
        check(f"{path} is root's alone", (found.st_mode & 0o777, found.st_uid) == (0o600, 0))
    for kind in ("agent", "coordinator"):
        done = stado(kind, "status", user=None)
        said = "at work" in done.stdout and done.returncode == 0
        check(f"{kind} status", said, both(done))
        print(done.stdout, flush=True)
        done = stado(kind, "logs", "-n", "3", user=None)
        check(f"{kind} logs", "event=" in done.stdout, both(done))


def units() -> None:
    for unit in (AGENT, COORDINATOR):
        path = f"/etc/systemd/system/{unit}"
        done = run("systemd-analyze", "verify", path)
        clean = done.returncode == 0 and unit not in done.stderr
        check(f"systemd has nothing to say of {unit}", clean, both(done))
        done = run("systemd-analyze", "security", "--no-pager", unit)
        say(f"note {done.stdout.strip().splitlines()[-1] if done.stdout else done.stderr}")


def jobs() -> None:
    first = submit("hello", "id -un; cat /proc/self/cgroup; env; touch /srv/scratch/here")
    check("a job completes", wait(lambda: state(first) == "completed"), job(first))
    text = log(first)
    check("it runs as the account", text.startswith("stado\n"), text)
    check("it is in a group below the service's", f"{AGENT}/stado-" in text, text)
    leaked = [name for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "INVOCATION_ID") if name in text]
    check("it hears nothing of the service manager", not leaked, leaked)
    pid = show(AGENT, "MainPID")
    greedy = submit(
        "greedy", "python3 -c 'x = bytearray(600 << 20); print(len(x))'", "--memory-gb", "0.1"
    )
    check("a job beyond its memory fails", wait(lambda: state(greedy) == "failed"), job(greedy))
    check("as such", "memory" in str(job(greedy).get("status_reason")), job(greedy))
    say(f"note {job(greedy).get('status_detail')}")
    check("and its agent is well", show(AGENT, "MainPID") == pid and active(AGENT))
    limits = run("journalctl", "-u", AGENT, "--no-pager").stdout
    say(f"note {next((one for one in limits.splitlines() if 'limits_memory_by' in one), '?')}")


def active(unit: str) -> bool:
    return show(unit, "ActiveState") == "active"


def adoption() -> None:
    name = submit("long", "for i in $(seq 40); do echo $i; sleep 1; done; echo survived")
    check("a job runs", wait(lambda: state(name) == "running" and "3\n" in log(name)), job(name))
    pid = show(AGENT, "MainPID")
    done = stado("agent", "uninstall", user=None)
    check("an agent with a job is not uninstalled", "--leave-jobs" in done.stderr, both(done))
    began = time.monotonic()
    run("systemctl", "restart", AGENT)
    say(f"note a restart under a job takes {time.monotonic() - began:.1f} s")
    check("an agent is started anew under a job", show(AGENT, "MainPID") != pid and active(AGENT))
    done = stado("agent", "status", user=None)
    check("the next one knows of the job", name in done.stdout or name in both(done), both(done))
    check("the job completes", wait(lambda: state(name) == "completed"), job(name))
    check("in its only start", job(name).get("starts") == 1, job(name).get("starts"))
    check("with all that it printed", "survived" in log(name), log(name))
    run("systemctl", "stop", AGENT)
    check("a stop is no failure", show(AGENT, "Result") == "success", show(AGENT, "Result"))
    run("systemctl", "start", AGENT)


def watchdog() -> None:
    folder = Path(f"/run/systemd/system/{AGENT}.d")
    folder.mkdir(parents=True)
    (folder / "short.conf").write_text("[Service]\nWatchdogSec=20\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", AGENT)
    time.sleep(45)
    pid = show(AGENT, "MainPID")
    check("an agent that turns is left alone", show(AGENT, "NRestarts") == "0" and active(AGENT))
    name = submit("through", "for i in $(seq 60); do echo $i; sleep 1; done; echo survived")
    check("a job runs", wait(lambda: state(name) == "running" and "3\n" in log(name)), job(name))
    run("kill", "-STOP", pid)
    other = wait(lambda: show(AGENT, "MainPID") not in (pid, "0") and active(AGENT), 180)
    check("one that hangs is started anew", other, show(AGENT, "Result"))
    check("its job completes", wait(lambda: state(name) == "completed"), job(name))
    check("in its only start", job(name).get("starts") == 1, job(name).get("starts"))
    (folder / "short.conf").unlink()
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", AGENT)


def of_a_user() -> None:
    run("useradd", "--create-home", "--shell", "/bin/bash", "ada")
    uid = pwd.getpwnam("ada").pw_uid
    queue = "/home/ada/queue"
    check("a user's deployment", run(STADO, "init", "--store", queue, user="ada").returncode == 0)
    run("systemctl", "start", f"user@{uid}")
    ada = ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", STADO)
    install = (*ada, "agent", "install", "--store", queue)
    done = run(*install, user="ada")
    check("without linger it is refused", "enable-linger ada" in done.stderr, both(done))
    run("loginctl", "enable-linger", "ada")
    done = run(*install, user="ada")
    check("with linger it is installed", "runs (process" in done.stdout, both(done))
    wait(lambda: run(*ada, "agent", "status", user="ada").returncode == 0)
    done = run(*ada, "agent", "status", user="ada")
    check("its status", done.returncode == 0 and "of the user" in done.stdout, both(done))
    print(done.stdout, flush=True)


def before_the_reboot() -> None:
    command = "test -e /srv/scratch/mark && exit 0; touch /srv/scratch/mark; sleep 3000"
    name = submit("over", command)
    check("a job runs at the reboot", wait(lambda: Path(SCRATCH, "mark").exists()), job(name))
    STAGE.write_text(json.dumps({"job": name, "at": time.time()}))
    say("note reboot")
    run("systemctl", "reboot")


def second() -> None:
    stage = json.loads(STAGE.read_text())
    say(f"note back after {time.time() - stage['at']:.0f} s")
    check("the agent is back", wait(lambda: active(AGENT)), show(AGENT, "SubState"))
    check(
        "the coordinator is back", wait(lambda: active(COORDINATOR)), show(COORDINATOR, "SubState")
    )
    name = stage["job"]
    check("its job runs again and completes", wait(lambda: state(name) == "completed"), job(name))
    if any(one.pw_name == "ada" for one in pwd.getpwall()):
        after_the_reboot_of_a_user()
    uninstalls()


def after_the_reboot_of_a_user() -> None:
    uid = pwd.getpwnam("ada").pw_uid
    ada = ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", STADO)
    well = wait(lambda: run(*ada, "agent", "status", user="ada").returncode == 0)
    check("the user's agent is back, with nobody logged in", well)
    done = run(*ada, "agent", "uninstall", "--purge", user="ada")
    check("the user's is uninstalled", "removed" in done.stdout, both(done))


def uninstalls() -> None:
    left = submit("left", "for i in $(seq 30); do echo $i; sleep 1; done; echo survived")
    check("a job runs", wait(lambda: state(left) == "running" and "2\n" in log(left)), job(left))
    done = stado("agent", "uninstall", "--leave-jobs", user=None)
    said = left in done.stderr and f"left {WORK}" in done.stdout
    check("an agent is uninstalled, and says what goes on and what stays", said, both(done))
    check("its unit is gone", show(AGENT, "LoadState") == "not-found", show(AGENT, "LoadState"))
    check("the job goes on to its end", wait(lambda: state(left) == "completed"), job(left))
    done = stado("coordinator", "uninstall", "--purge", user=None)
    check("a coordinator is uninstalled", done.returncode == 0, both(done))
    gone = not Path("/etc/stado/coordinator.env").exists()
    check("with its variables", gone)


def main() -> None:
    try:
        if STAGE.exists():
            second()
            say("end")
            run("systemctl", "poweroff")
        else:
            first()
    except Exception as error:  # noqa: BLE001 - whatever it is, who looks at the console has to see it
        import traceback

        traceback.print_exc(file=sys.stdout)
        say(f"FAIL ended by {error!r}")
        run("systemctl", "poweroff")


if __name__ == "__main__":
    main()
