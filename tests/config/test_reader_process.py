"""Settings that another process read are the same in the agent, which has no pydantic."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import federator
from federator.config import reader_process
from federator.config.settings import Settings
from federator.config.validation import validated
from federator.errors import ConfigError
from federator.runtime.agent.process import READS

TOLD = {
    "broker": {"id": 1, "url": "mqtts://here", "username": "us", "password": "hush"},
    "neighbours": [
        {"id": 2, "url": "mqtts://there", "import": ["a/#"], "capacity": "2 Mbit/s"},
        {"url": "mqtts://elsewhere", "proxy": "http://proxy:3128"},
    ],
    "leaves": [{"id": 417}],
    "rules": {"deny": ["secret/#"]},
    "links": {"username": "links", "password": "also"},
    "keys": {"agent_file": "/k/a", "federation_files": ["/k/f"]},
}

HELD = """
import pickle, sys
settings = pickle.load(sys.stdin.buffer)
heavy = {"pydantic", "pydantic_core", "click", "rich"} & set(sys.modules)
assert not heavy, heavy
told = {
    "parameters": settings.parameters(),
    "notices": settings.notices(),
    "failover": settings.failover_parameters(),
    "port": settings.for_leaf(settings.leaves[0]),
    "named": [settings.neighbour_connection(each) for each in settings.neighbours],
    "dialled": settings.dialled_back("mqtts://new"),
    "secret": settings.broker.secret(),
    "again": settings,
}
pickle.dump(told, sys.stdout.buffer)
"""


def held(program, value):
    """What ``program`` says in another process."""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, input=pickle.dumps(value), stdout=subprocess.PIPE, check=True)
    return pickle.loads(ran.stdout)


def test_who_holds_settings_answers_as_who_validated_them():
    settings = validated(Settings, TOLD)

    told = held(HELD, settings)

    assert told["parameters"] == settings.parameters()
    assert told["notices"] == settings.notices()
    assert told["failover"] == settings.failover_parameters()
    assert told["port"] == settings.for_leaf(settings.leaves[0])
    assert told["named"] == [settings.neighbour_connection(each) for each in settings.neighbours]
    assert told["dialled"] == settings.dialled_back("mqtts://new")
    assert told["secret"] == b"hush"
    assert told["again"] == settings


REFUSED = """
import pickle, sys
from federator.config import reader_process
from federator.errors import ConfigError
try:
    told = reader_process.outcome(*pickle.load(sys.stdin.buffer))
except ConfigError as error:
    told = str(error), error.exit_code
assert "pydantic" not in sys.modules
pickle.dump(told, sys.stdout.buffer)
"""


def test_a_file_is_read_by_another_process_and_refused_in_the_same_words(tmp_path):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('security = "open"\n[broker]\nid = 1\nurl = "mqtt://127.0.0.1"\n')
    bad.write_text("[broker]\nid = -1\n")

    with pytest.raises(ConfigError) as refused:
        reader_process.outcome(READS, bad)

    assert held(REFUSED, (READS, good)) == reader_process.outcome(READS, good)
    assert held(REFUSED, (READS, bad)) == (str(refused.value), refused.value.exit_code)


ISOLATED = """
import sys
sys.path[:] = {path!r}
from federator.config import reader_process
import subprocess
command = [*reader_process.interpreter(), "-c", {program!r}]
sys.exit(subprocess.run(command, env=reader_process.environment()).returncode)
"""
"""As the Debian package starts: no variable and no folder of Python's but those shown by hand."""


def test_an_isolated_interpreter_hands_on_where_packages_are(tmp_path):
    (tmp_path / "federator").symlink_to(Path(federator.__file__).parent)
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "federator.py").write_text("raise SystemExit('the wrong one')")
    program = "import federator, sys; print(federator.__file__, sys.flags.no_site)"
    isolated = ISOLATED.format(path=[str(tmp_path), *sys.path], program=program)

    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", isolated],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "planted")},
        cwd=tmp_path / "planted",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.stdout, ran.stderr) == (f"{tmp_path}/federator/__init__.py 1\n", "")


def test_the_agent_imports_nothing_that_it_has_no_use_for():
    program = (
        "import pickle, sys; sys.modules['rich'] = None\n"
        "import federator.runtime.agent.process, federator.runtime.process.logs\n"
        "import federator.runtime.agent.app\n"
        "pickle.dump(sorted({name.partition('.')[0] for name in sys.modules}), sys.stdout.buffer)"
    )
    heavy = {
        *("pydantic", "pydantic_core", "pydantic_settings", "click", "pygments", "cryptography"),
        *("prometheus_client", "wsproto", "h11", "email", "zipfile", "tomllib", "raptorq"),
        *("opentelemetry", "requests"),
        *(
            "numpy",
            "scipy",
            "highspy",
            "pandas",
            "pyspark",
            "networkx",
            "lab",
            "federator_analytics",
        ),
    }

    assert heavy & set(held(program, None)) == set()
