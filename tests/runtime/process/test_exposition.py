"""Where in a record a metric stands, and what has no value there."""

from types import SimpleNamespace

from federator.runtime.process.exposition import families, table

TABLE = table(
    "fed",
    """
gauge about name
  = info 1; the label says who.
counter work.done
  jobs jobs Jobs that were
      done.
counter work kind
  by_kind kinds By kind.
gauge links[peer] peer
  up link_up Whether it is up.
gauge sides[] side
  bytes side_bytes Bytes of a side.
gauge .
  ready ready Whether it is ready.
""",
)


def read(record):
    return {row.name: value for row, value in families(TABLE, record)}


def test_a_value_is_found_by_its_path_and_labelled_by_key_or_entry():
    record = SimpleNamespace(
        about={"name": "hall"},
        work={"done": SimpleNamespace(jobs=3), "by_kind": {"a": 1}},
        links=[SimpleNamespace(peer=2, up=True), SimpleNamespace(peer=3, up=None)],
        sides={"mesh": {"bytes": 5}, "asked": 7},
        ready=True,
    )

    assert read(record) == {
        "fed_info": {("hall",): 1},
        "fed_jobs_total": 3,
        "fed_kinds_total": {("a",): 1},
        "fed_link_up": {("2",): True},
        "fed_side_bytes": {("mesh",): 5},
        "fed_ready": True,
    }
    assert [row.help for row in TABLE if row.attribute == "jobs"] == ["Jobs that were done."]


def test_what_is_absent_is_no_metric():
    assert read({"about": {"name": ""}, "work": None, "links": [], "sides": None}) == {}
