"""What an operator meets when something is missing: one line, and the right exit code."""

import os
import zipfile

import pytest
from federator_analytics.cli import main
from federator_analytics.cli.submit import ship
from federator_analytics.errors import UnavailableError
from federator_analytics.jobs.tables import LOCK, alone_in
from federator_analytics.session import find_java, is_on_this_machine

from federator import __version__
from tests.analytics.programs import run


def java_that_says(folder, text, code=0):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return str(folder)


def test_help_names_the_verbs_and_needs_no_spark(tmp_path):
    (tmp_path / "pyspark.py").write_text("raise AssertionError('imported')")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', os.getcwd())}"

    found = run("--help", PYTHONPATH=path)

    assert found.returncode == 0
    assert "submit" in found.stdout


def test_an_unknown_verb_is_a_usage_error_in_one_line():
    found = run("reprot")

    assert found.returncode == 64
    assert found.stderr.count("\n") == 1
    assert "reprot" in found.stderr


@pytest.mark.parametrize(
    ("source", "option", "code", "text"),
    [
        ("mqtt://a", "collectorFile", 64, "--option: KEY=VALUE, once for each KEY, is wanted"),
        ("landing", "username=u", 64, "with an mqtt:// INPUT"),
        ("mqtt://a", "federationFiles=/none", 66, "federationFiles /none: No such file"),
    ],
)
def test_an_option_of_the_live_source_that_is_of_no_use_is_told_at_once(source, option, code, text):
    live = ("--federation", "fed", "--option", option)

    found = run("stream", source, "--out", "x", *live, JAVA_HOME="/nowhere")

    assert (found.returncode, found.stderr.count("\n")) == (code, 1)
    assert text in found.stderr


def test_missing_java_is_one_line_and_unavailable():
    found = run("submit", "--master", "local[1]", "--", "report", "x", JAVA_HOME="/nowhere")

    assert found.returncode == 69
    assert found.stderr == (
        "federator-analytics: no Java in JAVA_HOME=/nowhere: Java 17 or newer is wanted: "
        "install it, or point JAVA_HOME at it\n"
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('java version "1.8.0_202"', "is Java 8:"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11:"),
        ("what version?", "is Java what version?:"),
    ],
)
def test_a_java_too_old_is_named(tmp_path, monkeypatch, answer, said):
    monkeypatch.setenv("JAVA_HOME", java_that_says(tmp_path, answer))

    with pytest.raises(UnavailableError, match="Java 17 or newer is wanted") as error:
        find_java()

    assert said in str(error.value)


def test_a_java_that_fails_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", java_that_says(tmp_path, "no heap", code=1))

    with pytest.raises(UnavailableError, match="does not answer"):
        find_java()


def test_a_newer_java_will_do(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", java_that_says(tmp_path, 'openjdk version "21" 2023-09-19'))

    assert find_java() == 21


def test_a_missing_library_is_named_with_what_to_install(tmp_path):
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no', name='pyspark')")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', os.getcwd())}"

    found = run("submit", "--help", PYTHONPATH=path)

    assert found.returncode == 69
    wheel = f"mqtt_federator_analytics-{__version__}-py3-none-any.whl"
    wanted = f"pyspark is not installed: run pip install '{wheel}'"
    assert found.stderr == f"federator-analytics: {wanted}\n"


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "spark://127.0.0.1", "spark://"])
def test_a_master_that_is_not_there_is_said_at_once(master):
    found = run("submit", "--master", master, "--", "report", "x")

    assert found.returncode == 69
    assert f"no Spark master at {master} (" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.fixture
def here(capsys):
    """Runs a verb that ends before Spark starts in this process; its exit code and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("verb", "option", "value", "wanted"),
    [
        *(
            (verb, "--master", value, "local, local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT")
            for verb in ("report", "stream", "submit")
            for value in ("foo", "sc://hub:15002", "local[0]")
        ),
        *(
            (verb, "--driver-memory", value, "a whole number with m or g, such as 2g, from 512m on")
            for verb in ("report", "submit")
            for value in ("lots", "2gb", "0g", "2", "100m")
        ),
        ("submit", "--executor-memory", "lots", "a whole number with m or g"),
    ],
)
def test_a_value_that_spark_would_answer_with_a_page_of_java_is_one_line(
    here, tmp_path, verb, option, value, wanted
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("")
    said = {
        "report": ["report", tmp_path / "in", "--out", tmp_path / "out"],
        "stream": ["stream", tmp_path / "in", "--out", tmp_path / "out"],
        "submit": ["submit", "--master", "local[1]", "report"],
    }[verb]

    code, err = here(*said, option, value)

    assert (code, err.count("\n")) == (64, 1)
    assert f"Invalid value for '{option}': {value}: {wanted}" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", ["", "/nowhere"])
def test_a_cluster_of_hadoop_wants_the_folder_of_its_configuration(
    here, tmp_path, monkeypatch, folder
):
    (tmp_path / "a.jsonl").write_text("")
    if folder:
        monkeypatch.setenv("HADOOP_CONF_DIR", folder)

    code, err = here("report", tmp_path, "--out", tmp_path / "out", "--master", "yarn")

    assert (code, err.count("\n")) == (66, 1)
    said = "HADOOP_CONF_DIR=/nowhere: no such folder" if folder else "or YARN_CONF_DIR is not set"
    assert "--master yarn: " in err
    assert said in err
    assert not (tmp_path / "out").exists()


def test_of_two_writers_to_one_folder_the_second_is_sent_away(here, tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    out = tmp_path / "out"

    with alone_in(str(out)):
        found = [here("report", tmp_path, "--out", out), here("stream", tmp_path, "--out", out)]

    text = f"--out {out}: another report or stream writes there: end it first, or name another"
    assert found == [(75, f"federator-analytics: {text} folder\n")] * 2
    assert [path.name for path in out.iterdir()] == [LOCK]
    with alone_in(str(out)):
        pass  # the first has ended


def test_an_output_that_cannot_be_written_is_one_line(here, tmp_path):
    (tmp_path / "a.jsonl").write_text("")

    code, err = here("stream", tmp_path, "--out", "/proc/out")

    assert (code, err.count("\n")) == (73, 1)
    assert "--out /proc/out: No such file or directory: a folder that this user" in err


def test_the_shipped_zip_holds_our_code_and_nothing_compiled(tmp_path):
    ship(tmp_path / "ours.zip")

    names = zipfile.ZipFile(tmp_path / "ours.zip").namelist()
    assert {
        "federator_analytics/session.py",
        "federator_analytics/cli/__init__.py",
        "federator/errors.py",
    } <= {*names}
    assert not [name for name in names if name.endswith((".pyc", ".so"))]


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[2]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://hub:7077", False),
        ("yarn", False),
        ("k8s://https://hub:443", False),
    ],
)
def test_spark_listens_on_loopback_only_where_all_of_it_is_here(master, here):
    assert is_on_this_machine(master) is here
