"""A container engine in memory, which answers or does not."""

from __future__ import annotations

from stado.errors import EngineFailed
from stado.ports import ContainerState, EngineFacts

IMAGE_ID = "sha256:" + "0a" * 32


class FakeEngine:
    """`images`: what it has. `labels`: of its containers, by id."""

    def __init__(self, *images: str) -> None:
        self.program = "docker"
        self.answers = True
        self.images = set(images)
        self.labels: dict[str, dict[str, str]] = {}
        self.facts_asked = 0

    def facts(self) -> EngineFacts:
        self.facts_asked += 1
        self._answer()
        return EngineFacts("docker 27.5.1", as_us=False)

    def find_image(self, image: str) -> str | None:
        self._answer()
        return IMAGE_ID if image in self.images else None

    def containers(self, label: str, *, telling: str) -> dict[str, str]:
        self._answer()
        name, _, value = label.partition("=")
        return {c: found[telling] for c, found in self.labels.items() if found[name] == value}

    def state(self, container: str) -> ContainerState | None:
        self._answer()
        return None

    def signal(self, container: str, signal_number: int) -> None:
        self._answer()

    def remove(self, container: str) -> None:
        self._answer()
        self.labels.pop(container, None)

    def _answer(self) -> None:
        if not self.answers:
            raise EngineFailed("Cannot connect to the Docker daemon")
