"""The compose file is the 3x3 grid, hardened alike everywhere, and what it mounts can be used."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.config.reading import load, load_collector, load_console, load_gateway
from lab.grid.topology import Grid

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GRID = Grid(3, 3)
UNLIKE = {"networks", "environment", "volumes"}
"""What sites have of their own."""
ONE_SHOTS = {"keys", "welcome", "report"}


def test_sites_are_joined_by_the_links_of_the_grid_and_by_nothing_else():
    for broker, neighbours in GRID.neighbours.items():
        agent = SERVICES[f"agent-{broker}"]
        named = yaml.safe_load(agent["environment"]["FEDERATOR_NEIGHBOURS"])
        sites = {f"site-{here}" for here in (broker, *neighbours)}

        assert SERVICES[f"broker-{broker}"]["networks"] == [f"site-{broker}"]
        assert set(agent["networks"]) == {"management", *sites}
        assert named == [{"id": n, "url": f"mqtt://broker-{n}"} for n in neighbours]


def test_every_broker_has_an_agent_with_its_id_and_volumes_of_their_own():
    volumes: list[str] = []
    for broker in GRID.ids:
        agent = SERVICES[f"agent-{broker}"]
        volumes += [v.split(":")[0] for v in agent["volumes"] if v.startswith("agent-")]
        volumes += [v.split(":")[0] for v in SERVICES[f"broker-{broker}"]["volumes"]][-1:]

        assert agent["environment"]["FEDERATOR_BROKER__ID"] == broker
        assert agent["environment"]["FEDERATOR_BROKER__URL"] == f"mqtt://broker-{broker}"

    assert sorted(volumes) == sorted(
        f"{kind}-{b}" for b in GRID.ids for kind in ("agent", "broker")
    )


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_rights_it_does_not_need(name: str):
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert not service.get("privileged")
    assert "cap_add" not in service or name == "keys"
    assert service.get("user", "10001:10001").partition(":")[0].isdecimal()


def test_nobody_can_log_in_to_grafana_with_its_default_password():
    said = SERVICES["grafana"]["environment"]

    assert said["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert said["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert said["GF_AUTH_BASIC_ENABLED"] == "false"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_bounded_and_watched(name: str):
    service = SERVICES[name]

    assert service["stop_grace_period"] == "10s"
    assert service["pids_limit"] > 0
    assert service["logging"]["options"]["max-size"]
    assert service["restart"] == ("no" if name in ONE_SHOTS else "unless-stopped")
    if name not in ONE_SHOTS:
        assert service["healthcheck"]["test"]


def test_nothing_listens_beyond_this_machine_unless_told_to_and_no_port_twice():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    ours = [port.rsplit(":", 2)[-2] for port in ports]

    assert all(port.startswith("${FEDERATOR_BIND:-127.0.0.1}:") for port in ports)
    assert len(set(ours)) == len(ours)


def test_only_the_keys_service_sees_the_federations_secret_key():
    holders = [name for name, s in SERVICES.items() if "office:/office" in s.get("volumes", [])]

    assert holders == ["keys"]


def test_every_volume_and_network_that_is_used_is_declared_and_the_other_way_round():
    mounted = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", [])}
    joined = {network for s in SERVICES.values() for network in s.get("networks", [])}

    assert {v for v in mounted if not v.startswith("./")} == set(COMPOSE["volumes"])
    assert joined == set(COMPOSE["networks"])
    assert all((ROOT / v).exists() for v in mounted if v.startswith("./"))


def test_the_dockerfile_begins_with_images_that_can_be_made_offline():
    bases = re.findall(r"^FROM (\S+:\S+)", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    images = {s["image"] for s in SERVICES.values() if not s["image"].startswith("${")}
    stand_ins = (ROOT / "script" / "offline-images").read_text()

    assert all(image in stand_ins for image in {*bases, *images} - {"grafana/grafana:12.0.2"})


@pytest.fixture
def as_mounted(tmp_path_factory: pytest.TempPathFactory):
    """A file of deploy/docker as its container sees it, with the secrets that `keys` makes."""
    tmp_path = tmp_path_factory.mktemp("mounted")
    (tmp_path / "keys").mkdir()
    for name in ("password", "peer.password", "keys/agent.key", "keys/federation.pub"):
        (tmp_path / name).write_text("x\n")
        (tmp_path / name).chmod(0o600)

    def write(name: str) -> Path:
        text = (DOCKER / name).read_text().replace("/var/lib/federator", str(tmp_path))
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def test_every_agents_configuration_can_be_used(as_mounted):
    path = as_mounted("agent.toml")

    for broker, neighbours in GRID.neighbours.items():
        said = {k: str(v) for k, v in SERVICES[f"agent-{broker}"]["environment"].items()}
        settings = load(path, said)

        assert settings.broker.id == broker
        assert len(settings.neighbours) == len(neighbours)
        assert settings.security == "signed"


def test_the_gateways_and_the_collectors_configurations_can_be_used(as_mounted):
    names = [SERVICES[f"gateway-{where}"]["environment"] for where in ("west", "east")]
    gateways = [load_gateway(as_mounted("gateway.toml"), said) for said in names]
    collector = load_collector(as_mounted("collector.toml"), {})

    assert [gateway.name for gateway in gateways] == ["west", "east"]
    assert [broker.id for broker in gateways[0].brokers] == list(GRID.ids)
    assert str(collector.landing) == "/landing"


def test_the_console_begins_with_one_broker_and_may_go_to_all(as_mounted, tmp_path: Path):
    office = tmp_path / "office"
    path = as_mounted("console.toml")
    issue = f"issue --dir {office} --role operator --name console --out {path.parent}/operator.key"
    for words in (f"init {office}", issue):
        command = [sys.executable, "-m", "federator", "keys", *words.split()]
        subprocess.run(command, check=True, capture_output=True)
    shutil.copyfile(office / "federation.pub", path.parent / "federation.pub")
    console = load_console(path, {})

    assert [broker.url for broker in console.brokers] == ["mqtt://broker-0"]
    assert list(console.login.hosts) == [f"broker-{b}" for b in GRID.ids]


def test_one_more_broker_is_a_site_like_the_others_and_all_who_must_know_of_it_do(
    as_mounted, tmp_path: Path
):
    """Two of them, of which one is the other's neighbour, and the first removed again."""
    for name in ("docker-compose.yml", "script/add-broker"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "deploy" / "prometheus").mkdir(parents=True)

    def add(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tmp_path / "script" / "add-broker"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert [add("9", "8").returncode, add("10", "9", "0").returncode] == [0, 0]
    made = yaml.safe_load((tmp_path / "docker-compose.override.yml").read_text())
    services, everybody = made["services"], [*GRID.ids, 9, 10]

    for kind in ("broker", "agent"):
        model = yaml.safe_dump(SERVICES[f"{kind}-8"]).replace("18838", "19010")
        there, here = yaml.safe_load(model), services[f"{kind}-10"]
        assert {k: v for k, v in here.items() if k not in UNLIKE} == {
            k: v for k, v in there.items() if k not in UNLIKE
        }
        assert [re.sub(r"\b(agent|broker)-10\b", r"\1-8", v) for v in here["volumes"]] == there[
            "volumes"
        ]
    assert services["broker-10"]["networks"] == ["site-10"]
    assert services["agent-10"]["networks"] == ["management", "site-0", "site-9", "site-10"]
    assert services["agent-9"]["networks"] == ["management", "site-8", "site-9", "site-10"]
    assert [services[f"agent-{b}"] for b in (0, 8)] == [
        {"networks": ["site-10"]}, {"networks": ["site-9"]},
    ]  # fmt: skip
    assert services["keys"]["command"] == [str(b) for b in everybody]
    ready = {word.partition(":")[0] for word in services["welcome"]["command"]}
    assert ready == {word.partition(":")[0] for word in SERVICES["welcome"]["command"]} | {
        "agent-9", "agent-10",
    }  # fmt: skip
    assert set(made["networks"]) == {"site-9", "site-10"}
    assert set(made["volumes"]) == {"agent-9", "agent-10", "broker-9", "broker-10"}

    folder = str(as_mounted("gateway.toml").parent)
    told = services["gateway-west"]["environment"]["FEDERATOR_BROKERS"]
    said = {"FEDERATOR_BROKERS": told.replace("/var/lib/federator", folder)}
    gateway = load_gateway(as_mounted("gateway.toml"), said)
    collector = load_collector(as_mounted("collector.toml"), services["collector"]["environment"])
    before = load_gateway(as_mounted("gateway.toml"), {})
    assert [broker.id for broker in gateway.brokers] == everybody
    assert gateway.brokers[:9] == before.brokers
    assert list(collector.login.hosts) == [f"broker-{b}" for b in everybody]
    assert services["console"]["environment"] == services["collector"]["environment"]

    refused = [
        add(*words) for words in (["9", "8", "77"], ["8", "1"], ["x", "1"], ["--remove", "5"])
    ]
    assert [done.returncode for done in refused] == [1] * 4
    assert all(done.stderr.count("\n") == 1 for done in refused)
    assert [add("--remove", b).returncode for b in ("10", "9")] == [0, 0]
    assert not (tmp_path / "docker-compose.override.yml").exists()


def test_prometheus_scrapes_everything_that_has_a_page():
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    scraped = {
        target.partition(":")[0]
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }

    assert scraped == {
        name for name in SERVICES if re.match(r"(agent|gateway|collector|console)", name)
    }


LOCKS = ["requirements.lock", "requirements-console.lock", "requirements-analytics.lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_what_runs_in_a_container_is_what_the_tests_ran_on(lock: str):
    def pins(name: str) -> set[str]:
        return set(
            re.findall(
                r"^([\w.-]+==\S+)", (ROOT / "deploy" / "locks" / name).read_text(), re.MULTILINE
            )
        )

    assert pins(lock) <= pins("requirements-dev.lock")
