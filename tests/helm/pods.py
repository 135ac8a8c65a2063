"""Pods without a cluster: their volumes as folders, their containers as processes of this machine.

What a container mounts lies below a folder of its own. Whatever names a path, a host or a port
there (configurations, scripts) is told that folder, 127.0.0.1 and a free port instead. Nothing else
is changed: the programs read what the chart renders.
"""

import asyncio
import base64
import getpass
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.grid.processes.broker import find_mosquitto
from lab.grid.processes.children import Child, get, spawn
from lab.grid.processes.ports import free_ports
from tests.helm.chart import Manifest, of_kind

Files = Mapping[str, bytes]
CONFIGURATIONS = {
    "run": "federator.toml",
    "gateway": "gateway.toml",
    "collect": "collector.toml",
    "console": "console.toml",
}
"""Where in /etc/federator each daemon looks by itself."""


LISTENER = re.compile(r"^listener (\d+)( 127\.0\.0\.1)?$", re.M)
"""Of mosquitto.conf."""

PORT = re.compile(r"^(\s*port = )(\d+)$", re.M)
"""Of a configuration of ours."""


def programs() -> dict[str, str]:
    """The environment of containers: our programs and Mosquitto's are found."""
    folders = (Path(sys.executable).parent, Path(find_mosquitto()).parent)
    path = ":".join([*map(str, folders), os.environ.get("PATH", os.defpath)])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FEDERATOR_")}
    return kept | {"PATH": path}


class Cluster:
    """What pods find around them: ConfigMaps, Secrets, and each other."""

    def __init__(
        self, folder: Path, manifests: list[Manifest], secrets: Mapping[str, Files]
    ) -> None:
        self.folder = folder
        self.config_maps = {
            name: {key: text.encode() for key, text in each["data"].items()}
            for name, each in of_kind(manifests, "ConfigMap").items()
        }
        self.secrets: dict[str, Files] = {
            name: {key: base64.b64decode(text) for key, text in each["data"].items()}
            for name, each in of_kind(manifests, "Secret").items()
        }
        self.secrets |= secrets
        sets = of_kind(manifests, "StatefulSet")
        self.brokers = {name: Pod(self, name, each) for name, each in sets.items()}
        others = of_kind(manifests, "Deployment")
        self.others = {name: Pod(self, name, each) for name, each in others.items()}

    @property
    def pods(self) -> list["Pod"]:
        """All of them, brokers first."""
        return [*self.brokers.values(), *self.others.values()]


class Pod:
    """One pod, laid out in a folder."""

    def __init__(self, cluster: Cluster, name: str, workload: Manifest) -> None:
        self.name, self.workload = name, workload
        self.folder = cluster.folder / name
        self._cluster = cluster
        self.spec: dict[str, Any] = workload["spec"]["template"]["spec"]
        self.containers: dict[str, Mapping[str, Any]] = {
            each["name"]: each for each in self.spec["containers"]
        }
        numbers = {
            port["containerPort"] for each in self.spec["containers"] for port in each["ports"]
        } | {1883}
        self.ports = dict(zip(sorted(numbers), free_ports(len(numbers)), strict=True))

    @property
    def mqtt(self) -> int:
        """Where clients connect."""
        return self.ports[8883 if 8883 in self.ports else 1883]

    @property
    def http(self) -> int:
        """Where its daemon has pages."""
        (port,) = (port for number, port in self.ports.items() if number > 9000)
        return port

    def lay_out(self) -> None:
        """Make the volumes, and what each container sees of them."""
        claims = self.workload["spec"].get("volumeClaimTemplates", [])
        volumes = {each["name"]: each for each in self.spec["volumes"]}
        volumes |= {each["metadata"]["name"]: {} for each in claims}
        for container in (*self.spec.get("initContainers", []), *self.spec["containers"]):
            for mount in container["volumeMounts"]:
                at = self.root(container) / mount["mountPath"].lstrip("/")
                at.parent.mkdir(parents=True, exist_ok=True)
                at.symlink_to(self._volume(container, volumes[mount["name"]], mount))

    def root(self, container: Mapping[str, Any]) -> Path:
        """Its file system."""
        return self.folder / str(container["name"])

    def _volume(
        self, container: Mapping[str, Any], volume: Mapping[str, Any], mount: Mapping[str, str]
    ) -> Path:
        if "configMap" in volume:  # whose text is told where this container's root is
            here = self.folder / f"{container['name']}-{mount['name']}"
            here.mkdir()
            told = volume["configMap"]
            for path, content in picked(self._cluster.config_maps[told["name"]], told):
                (here / path).write_text(self.in_place(container, content.decode()))
            return here
        here = self.folder / "volumes" / mount["name"] / mount.get("subPath", "")
        if not here.exists():
            here.mkdir(parents=True)
            for path, content, mode in self._secret_files(volume):
                (here / path).write_bytes(content)
                (here / path).chmod(mode)
        return here

    def _secret_files(self, volume: Mapping[str, Any]) -> Iterable[tuple[str, bytes, int]]:
        projected = volume.get("projected", {})
        sources = [each["secret"] for each in projected.get("sources", [])]
        mode = projected.get("defaultMode")
        if "secret" in volume:
            secret = volume["secret"]
            sources, mode = [secret | {"name": secret["secretName"]}], secret["defaultMode"]
        for source in sources:
            for path, content in picked(self._cluster.secrets[source["name"]], source):
                yield path, content, mode

    def in_place(self, container: Mapping[str, Any], text: str) -> str:
        """Text of the chart, with the paths and ports of this machine."""
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
        text = re.sub(rf"(?<![\w.-])({paths})(?=[/\s\"']|$)", rf"{self.root(container)}\1", text)
        for name, pod in self._cluster.brokers.items():
            for number, port in pod.ports.items():
                text = re.sub(rf"{name}-0\.[\w.-]+:{number}", f"127.0.0.1:{port}", text)
        text = re.sub(r'"\*\.[\w.-]+\.svc\.[\w.-]+"', '"127.0.0.1"', text)
        text = text.replace("127.0.0.1:1883", f"127.0.0.1:{self.ports[1883]}")
        text = text.replace('"0.0.0.0"', '"127.0.0.1"')
        text = LISTENER.sub(lambda it: f"listener {self.ports[int(it[1])]} 127.0.0.1", text)
        return PORT.sub(lambda it: f"{it[1]}{self.ports[int(it[2])]}", text)

    def initialise(self) -> None:
        """Run the containers that come first, one after the other."""
        for container in self.spec["initContainers"]:
            command = [*container["command"], *container["args"]]
            done = subprocess.run(
                [self.in_place(container, word) for word in command],
                env=programs() | {"FEDERATOR_CONFIG": str(self._configuration(container, "run"))},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{self.name}: {container['name']}: {done.stderr}"

    def _configuration(self, container: Mapping[str, Any], daemon: str) -> Path:
        return self.root(container) / "etc" / "federator" / CONFIGURATIONS[daemon]

    @property
    def ours(self) -> Mapping[str, Any]:
        """The container that is not Mosquitto's."""
        (container,) = (each for name, each in self.containers.items() if name != "mosquitto")
        return container

    def daemon(self) -> list[str]:
        """The command of the container that is ours."""
        (verb,) = self.ours["args"]
        return ["federator", verb, "-c", str(self._configuration(self.ours, verb))]

    async def answers(self, probe: str) -> bool:
        """Whether that probe of our container succeeds."""
        path = self.ours[probe]["httpGet"]["path"]
        code, _ = await get(self.http, path, who=self.name)
        return code == 200

    def check(self) -> subprocess.CompletedProcess[str]:
        """What the daemon says of its configuration: 0 when it can be used."""
        federator, verb, *config = self.daemon()
        words = ["check-config", *config] if verb == "run" else [verb, *config, "--check"]
        found = shutil.which(federator, path=programs()["PATH"])
        assert found is not None
        return subprocess.run(
            [found, *words], env=programs(), capture_output=True, text=True, check=False
        )

    def mosquitto(self) -> list[str]:
        """The command of its broker, which keeps our user: only root could read our folder."""
        config = self.root(self.containers["mosquitto"]) / "mosquitto" / "config" / "mosquitto.conf"
        own = self.folder / "mosquitto.conf"
        own.write_text(f"{config.read_text()}\nuser {getpass.getuser()}\n")
        return [find_mosquitto(), "-c", str(own)]

    def processes(self) -> list["ContainerProcess"]:
        """Its containers, not started yet, in the order of the manifest."""
        ours = ContainerProcess(self, "federator", self.daemon())
        if "mosquitto" not in self.containers:
            return [ours]
        return [ContainerProcess(self, "mosquitto", self.mosquitto()), ours]


class ContainerProcess(Child):
    """One container as a process, which has started when its startup probe says so."""

    def __init__(self, pod: Pod, name: str, command: list[str]) -> None:
        super().__init__(f"{name} of {pod.name}", pod.folder / f"{name}.log")
        self._command, self._pod, self._name = command, pod, name

    def _launch(self) -> None:
        path = f"PATH={programs()['PATH']}"
        self._process = spawn(["env", path, *self._command], log=self.log_path)

    async def _answers(self) -> bool:
        try:
            if self._name == "mosquitto":
                _, writer = await asyncio.open_connection("127.0.0.1", self._pod.mqtt)
                writer.close()
                return True
            return await self._pod.answers("startupProbe")
        except OSError:
            return False


def picked(files: Files, told: Mapping[str, Any]) -> Iterable[tuple[str, bytes]]:
    """What a volume shows of ``files``; one that is missing ends in ``KeyError``, as pods wait."""
    for item in told.get("items", [{"key": key, "path": key} for key in files]):
        if item["key"] in files or not told.get("optional"):
            yield item["path"], files[item["key"]]
