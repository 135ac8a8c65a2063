"""``federator plan``: exit codes, forms of output, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from federator import cli
from federator.command_line import wheel
from federator.planner.flow.instance_file import encode
from lab import cli as lab
from lab.papers.flow import generators


def ended(arguments):
    with pytest.raises(SystemExit) as raised:
        cli.main(["plan", *map(str, arguments)])
    return raised.value.code


def made(arguments):
    """An instance to practise on, which the laboratory makes."""
    with pytest.raises(SystemExit) as raised:
        lab.main(["paper", "generate", *map(str, arguments)])
    return raised.value.code


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.json"
    assert made(["table1", "--size", "case2", "-o", path]) == 0
    return path


@pytest.mark.parametrize("method", ["exact", "f2", "lagrangian", "greedy"])
def test_every_method_solves(method, small, capsys):
    assert ended(["solve", small, "--method", method, "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["method"] == method
    assert answer["cost"] > 0
    if method in ("exact", "lagrangian"):
        assert answer["lower_bound"] <= answer["cost"]


def test_a_table_for_people(small, capsys):
    assert ended(["solve", small]) == 0

    printed = capsys.readouterr()
    assert "bound" in printed.out
    assert printed.err == ""


def test_the_picture_is_svg_with_every_node(small, tmp_path):
    picture = tmp_path / "x.svg"

    assert ended(["draw", small, "-o", picture, "--method", "greedy"]) == 0

    root = ElementTree.fromstring(picture.read_text())
    assert len([each for each in root.iter() if each.tag.endswith("circle")]) == 11


@pytest.mark.parametrize("kind", ["grid", "geometric", "topology"])
def test_every_kind_can_be_generated_and_solved(kind, tmp_path, capsys):
    path = tmp_path / "i.json"
    assert made([kind, "--nodes", "20", "--topics", "8", "-o", path]) == 0
    assert made([kind, "--nodes", "20", "--topics", "8"]) == 0

    assert capsys.readouterr().out == path.read_text()  # the same seed, the same instance
    assert ended(["solve", path, "--method", "greedy"]) == 0


def generated(folder, flows, links):
    """The exit code of ``generate federation`` with these files."""
    traffic, table = folder / "traffic.json", folder / "links.json"
    traffic.write_text(json.dumps({"version": 1, "flows": flows}))
    table.write_text(json.dumps({"version": 1, "links": links}))
    return ended(["generate", "federation", "--traffic", traffic, "--links", table])


def test_a_federations_traffic_becomes_an_instance(tmp_path, capsys):
    flow = {"filter": "a/#", "origin": 1, "destination": 3, "rate": 2.5}
    flows = [flow, flow | {"destination": 2, "rate": 1}, flow | {"destination": 1}]
    links = [{"a": 1, "b": 2, "capacity": 3}, {"a": 2, "b": 3, "capacity": 3, "cost": 4}]

    assert generated(tmp_path, flows, links) == 0

    made = json.loads(capsys.readouterr().out)
    topic = {"name": "a/#@1", "rate": 2.5, "publisher": "1", "subscribers": ["2", "3"]}
    assert made["topics"] == [topic]
    assert [link["capacity"] for link in made["links"]] == [3, 3]


def test_a_flow_of_an_unknown_broker_is_65(tmp_path, capsys):
    flow = {"filter": "a", "origin": 1, "destination": 9, "rate": 1}

    assert generated(tmp_path, [flow], [{"a": 1, "b": 2, "capacity": 3}]) == 65

    assert "flows[0].destination: 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [("{", 65), ('{"version": 9}', 65), (None, 66)],
)
def test_a_bad_instance_is_one_line_that_names_the_file(text, code, tmp_path, capsys):
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)

    assert ended(["solve", path]) == code

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"federator: {path}: ")
    assert printed.err.count("\n") == 1


def test_a_file_of_a_gigabyte_is_refused_unread(tmp_path, capsys):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(2**30)  # sparse: takes no room
    began = time.perf_counter()

    assert ended(["solve", path]) == 65

    assert time.perf_counter() - began < 5
    assert "1073741824 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["solve"], ["generate", "federation"], ["generate", "ring"]])
def test_a_wrong_command_line_is_64(arguments, capsys):
    assert ended(arguments) == 64

    assert capsys.readouterr().err.startswith("federator: usage: ")


def processor_seconds(pid):
    """What a process has used so far: tells how far it came on a machine however busy."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.full
@pytest.mark.parametrize("verb", ["solve --json", "solve --json --method exact", "draw"])
def test_ctrl_c_gives_the_best_so_far_with_its_bound(verb, tmp_path):
    path = tmp_path / "big.json"
    path.write_bytes(encode(generators.grid(20, 20, topics=100, fan_out=5, seed=0, tightness=0.8)))
    command = [sys.executable, "-m", "federator", "plan", *verb.split(), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        while processor_seconds(child.pid) < 4 and child.poll() is None:  # it solves by then
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=800)

    assert err == b""
    assert child.returncode == 130
    if verb == "draw":
        assert b", bound " in out
    else:
        answer = json.loads(out)
        assert answer["cost"] > 0
        assert "lower_bound" in answer


def test_without_the_extra_one_line_says_what_to_install():
    program = "import sys; sys.modules |= dict.fromkeys(('numpy', 'scipy', 'highspy'))\n"
    program += "from federator.cli import main; main(['plan', 'solve', '--help'])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 69
    assert f"pip install '{wheel('planner')}'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_line_itself_needs_nothing_of_the_extra():
    code = "import sys, federator.cli; sys.exit('numpy' in sys.modules or 'scipy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
