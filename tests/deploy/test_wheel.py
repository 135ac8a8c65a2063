"""The wheel is the product alone: operators' verbs, a working agent, nothing of the laboratory."""

import asyncio
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from urllib.request import urlopen

import pytest

from federator.cli import VERBS
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.ports import free_ports

ROOT = Path(__file__).parents[2]
READY_POLLS = 300


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The ``bin`` folder of an environment with the wheel; packages it needs are lent to it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    run(sys.executable, "-m", "pip", *build)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    (site,) = folder.glob("env/lib/python*/site-packages")
    target = ("--target", site, "--no-deps", "--no-index", "--quiet", wheel)
    run(sys.executable, "-m", "pip", "install", *target)
    # A plain path: the .pth files of that folder, the editable install among them, do not count.
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "env" / "bin"


def test_the_wheel_brings_the_verbs_of_operators_and_nothing_of_the_laboratory(installed):
    program = (
        "import json, pkgutil, sys\n"
        "from importlib.util import find_spec\n"
        "from federator.cli import VERBS, federator\n"
        "import federator as package\n"
        "found = [each.name for each in pkgutil.walk_packages(package.__path__, 'federator.')]\n"
        "print(json.dumps([list(VERBS), find_spec('lab') is None, package.__file__, len(found)]))\n"
    )

    told = run(installed / "python", "-I", "-c", program, cwd="/")
    verbs, no_lab, file, modules = json.loads(told)

    assert verbs == list(VERBS)
    assert no_lab
    assert Path(file).is_relative_to(installed.parent)
    assert modules > 200


async def test_an_agent_of_the_wheel_serves_a_broker(installed, tmp_path):
    (port,) = free_ports(1)
    async with BrokerProcess(tmp_path / "broker") as broker:
        config = tmp_path / "federator.toml"
        config.write_text(
            f'security = "open"\nstate_dir = "{tmp_path / "state"}"\n'
            f'[broker]\nid = 1\nurl = "{broker.url}"\n[http]\nport = {port}\n'
        )
        command = (installed / "python", "-m", "federator", "run", "-c", config)
        agent = await asyncio.create_subprocess_exec(*command, cwd="/")
        try:
            assert await until_ready(port)
        finally:
            agent.terminate()
            assert await agent.wait() == 0


async def until_ready(port):
    """Ask once in a while, half a minute at most."""
    for _ in range(READY_POLLS):
        if await asyncio.to_thread(is_ready, port):
            return True
        await asyncio.sleep(0.1)
    return False


def is_ready(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except OSError:
        return False
