"""A stand-in for Docker: a client, which is a program, and an engine, which is a process that it
asks over a socket. Containers are real processes, children of the engine and of nobody else.

`python docker.py serve FOLDER` is the engine. Anything else is the client, which finds its engine
by the folder that it lies in. In the folder: `images.json` (what the engine has), `registry.json`
(what it can pull), each by name: `id`, and how it behaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

NEVER = "0001-01-01T00:00:00Z"


# --- the client -------------------------------------------------------------------------


def call(folder: str, argv: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"{folder}/socket")
        except OSError:
            where = f"unix://{folder}/socket. Is the docker daemon running?"
            print(f"Cannot connect to the Docker daemon at {where}", file=sys.stderr)
            return 125 if argv[0] == "run" else 1
        stream = connection.makefile("rw", encoding="utf-8", errors="surrogateescape")
        send(stream, argv=argv, environment=dict(os.environ))
        for line in stream:
            answer = json.loads(line)
            if "id" in answer:
                with open(answer["file"], "x") as file:
                    file.write(answer["id"])
                send(stream, go=True)
            if "out" in answer:
                os.write(1, answer["out"].encode(errors="surrogateescape"))
            if "err" in answer:
                os.write(2, answer["err"].encode())
            if "exit" in answer:
                return int(answer["exit"])
    print("error waiting for container: unexpected EOF", file=sys.stderr)
    return 125 if argv[0] == "run" else 1


def send(stream: object, **message: object) -> None:
    stream.write(json.dumps(message) + "\n")  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]


# --- the engine -------------------------------------------------------------------------

LOOKS_MAX = 2000
"""For what was killed, each 5 ms."""


class Container:
    def __init__(self, options: dict[str, list[str]], argv: list[str], image: dict) -> None:  # type: ignore[type-arg]
        self.id = os.urandom(32).hex()
        self.options, self.argv, self.image = options, argv, image
        self.labels = dict(label.partition("=")[::2] for label in options.get("--label", []))
        self.status, self.code, self.started, self.error = "created", 0, NEVER, ""
        self.process: subprocess.Popen[bytes] | None = None
        self.out_of_memory = False

    def start(self, environment: dict[str, str]) -> None:
        inside = {"PATH": self.image.get("path", os.environ["PATH"]), "OF_THE_IMAGE": "yes"}
        for setting in self.options.get("--env", []):
            name, stated, value = setting.partition("=")
            inside[name] = value if stated else environment[name]
        no_shell = (
            "echo '[FATAL tini (7)] exec /bin/sh failed: No such file or directory'; exit 127"
        )
        argv = [*self.options["--entrypoint"], *self.argv]
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", no_shell] if self.image.get("no_shell") else argv,
            cwd=self.options["--workdir"][0],
            env=inside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.status, self.started = "running", "2026-01-01T00:00:00Z"

    def wait(self) -> None:
        """Its first process takes all others with it: nothing of it is left when it has exited, not
        even what init has still to take away."""
        assert self.process is not None
        code = self.process.wait()
        for _ in range(LOOKS_MAX):
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            time.sleep(0.005)
        self.code = code if code >= 0 else 128 - code
        self.out_of_memory = bool(self.image.get("oom"))
        self.status = "exited"

    def signal(self, number: int) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def state(self) -> dict[str, object]:
        return {
            "Status": self.status,
            "Running": self.status == "running",
            "OOMKilled": self.out_of_memory,
            "ExitCode": self.code,
            "Error": self.error,
            "StartedAt": self.started,
        }


class Engine:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.containers: dict[str, Container] = {}
        self.pulled = threading.Lock()

    def serve(self) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            unseen = f"{self.folder}/socket.new"
            listener.bind(unseen)
            listener.listen(64)
            os.rename(unseen, f"{self.folder}/socket")  # from here on it can be connected to
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            stream = connection.makefile("rw", encoding="utf-8", errors="surrogateescape")
            request = json.loads(stream.readline())
            argv = request["argv"]
            with open(f"{self.folder}/calls", "a") as calls:
                calls.write(json.dumps(argv) + "\n")
            words = [argv[0]] if argv[0] in ("run", "pull", "info") else argv[:2]
            method = getattr(self, "_" + "_".join(words))
            method(stream, argv[len(words) :], request["environment"])

    def _known(self, name: str) -> dict:  # type: ignore[type-arg]
        with open(f"{self.folder}/{name}.json") as file:
            return json.load(file)  # type: ignore[no-any-return]

    def _info(self, stream: object, rest: list[str], environment: object) -> None:
        send(stream, out='27.5.1\tlinux\t["name=seccomp,profile=builtin"]\n', exit=0)

    def _image_inspect(self, stream: object, rest: list[str], environment: object) -> None:
        found = self._known("images").get(rest[-1])
        if found is None:
            send(stream, err=f"Error response from daemon: No such image: {rest[-1]}\n", exit=1)
        else:
            send(stream, out=found["id"] + "\n", exit=0)

    def _pull(self, stream: object, rest: list[str], environment: object) -> None:
        found = self._known("registry").get(rest[-1])
        send(stream, out=f"Pulling from {rest[-1]}\n")
        if found is None:
            what = f"manifest for {rest[-1]} not found: manifest unknown"
            send(stream, err=f"Error response from daemon: {what}\n", exit=1)
            return
        time.sleep(found.get("pull_seconds", 0))
        with self.pulled:
            images = self._known("images") | {rest[-1]: found}
            partial = f"{self.folder}/images.json.partial"
            with open(partial, "w") as file:
                json.dump(images, file)
            os.replace(partial, f"{self.folder}/images.json")  # Others read it meanwhile.
        send(stream, out="Status: Downloaded newer image\n", exit=0)

    def _run(self, stream: object, rest: list[str], environment: dict[str, str]) -> None:
        options, image_id, argv = parsed(rest)
        image = next((i for i in self._known("images").values() if i["id"] == image_id), None)
        missing = [m for m in map(mounted, options.get("--mount", [])) if not os.path.exists(m)]
        why = f"No such image: {image_id}" if image is None else image.get("refuses")
        if missing:
            why = f"bind source path does not exist: {missing[0]}"
        if why:
            send(stream, err=f"docker: Error response from daemon: {why}\n\nRun 'docker …'\n")
            send(stream, exit=125)
            return
        assert image is not None
        container = Container(options, argv, image)
        self.containers[container.id] = container
        send(stream, id=container.id, file=options["--cidfile"][0])
        if not stream.readline():  # type: ignore[attr-defined]
            return  # The client is gone: created, and never started.
        if "unstartable" in image:
            container.code, container.error = 127, image["unstartable"]
            send(stream, err=f"docker: Error response from daemon: {container.error}\n", exit=127)
            return
        container.start(environment)
        self._attend(stream, container)

    def _attend(self, stream: object, container: Container) -> None:
        """What it prints goes to a client that is there."""
        assert container.process is not None
        assert container.process.stdout is not None
        gone = False
        while data := os.read(container.process.stdout.fileno(), 1 << 16):
            try:
                if not gone:
                    send(stream, out=data.decode(errors="surrogateescape"))
            except OSError:
                gone = True
        container.wait()
        if not gone:
            send(stream, exit=container.code)

    def _container_ls(self, stream: object, rest: list[str], environment: object) -> None:
        what, _, value = rest[rest.index("--filter") + 1].partition("=")
        columns = rest[rest.index("--format") + 1]
        told = ""
        for one in list(self.containers.values()):
            name, _, wanted = value.partition("=")
            chosen = {"id": one.id == value, "label": one.labels.get(name) == wanted, "all": True}
            if chosen[what]:
                told += one.id
                if "\\t" in columns:
                    told += "\t" + one.labels.get(columns.partition('"')[2].partition('"')[0], "")
                told += "\n"
        send(stream, out=told, exit=0)

    def _container_inspect(self, stream: object, rest: list[str], environment: object) -> None:
        found = self.containers.get(rest[-1])
        if found is None:
            send(stream, err=f"Error response from daemon: No such container: {rest[-1]}\n", exit=1)
        else:
            send(stream, out=json.dumps(found.state()) + "\n", exit=0)

    def _container_kill(self, stream: object, rest: list[str], environment: object) -> None:
        found = self.containers.get(rest[-1])
        if found is None or found.status != "running":
            send(stream, err=f"Error response from daemon: {rest[-1]} is not running\n", exit=1)
            return
        found.signal(getattr(signal, rest[rest.index("--signal") + 1]))
        send(stream, out=rest[-1] + "\n", exit=0)

    def _container_rm(self, stream: object, rest: list[str], environment: object) -> None:
        found = self.containers.get(rest[-1])
        if found is None:
            send(stream, err=f"Error response from daemon: No such container: {rest[-1]}\n", exit=1)
            return
        while found.status == "running":
            found.signal(signal.SIGKILL)
            time.sleep(0.005)
        del self.containers[rest[-1]]
        send(stream, out=rest[-1] + "\n", exit=0)


FLAGS = ("--init", "--no-healthcheck")


def parsed(rest: list[str]) -> tuple[dict[str, list[str]], str, list[str]]:
    """Options, image, arguments."""
    options: dict[str, list[str]] = {}
    while rest[0].startswith("--"):
        if rest[0] in FLAGS:
            options[rest[0]], rest = [], rest[1:]
        else:
            options.setdefault(rest[0], []).append(rest[1])
            rest = rest[2:]
    return options, rest[0], rest[1:]


def mounted(mount: str) -> str:
    import csv

    fields = dict(field.partition("=")[::2] for field in next(csv.reader([mount])))
    return fields["source"]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        Engine(sys.argv[2]).serve()
    sys.exit(call(os.path.dirname(os.path.abspath(sys.argv[0])), sys.argv[1:]))
