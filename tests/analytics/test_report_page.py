"""The page and the summary, made from example tables; no Spark session is needed."""

import html
import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from federator_analytics.dashboard.app import fragments
from federator_analytics.digest.figures import SUMMARY_VERSION, summarise, traffic_figures
from federator_analytics.digest.liveness import liveness
from federator_analytics.digest.tables import ROWS_MAX, Tables, read_tables, tables_of
from federator_analytics.digest.units import DASH
from federator_analytics.errors import InputError
from federator_analytics.report.changes import KINDS_SHOWN, MARKS, convergence_section
from federator_analytics.report.page import page, summary_json
from federator_analytics.report.topology import topology
from federator_analytics.report.traffic import traffic_section
from federator_analytics.schemas.reports import REPORT_TABLES

from tests.analytics.example_tables import HOSTILE, NAMES, example, write_table, write_tables

MADE = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Elements(HTMLParser):
    """Tags with their attributes, and the texts between them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, example())
    tables = read_tables(folder)
    summary = summarise(tables, f"Title {HOSTILE}")
    return page(tables, summary, made_at=MADE), summary


def shown(tables):
    rows = Tables(tables)
    summary = summarise(rows, "Report")
    return page(rows, summary, made_at=MADE), summary


def test_the_page_asks_nothing_of_any_network(drawn):
    text, _ = drawn

    elements = Elements(text)

    kept = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= kept
    for tag, attributes in elements.tags:
        assert tag not in ("iframe", "img", "object", "embed", "base")
        for key in ("src", "href", "xlink:href", "action"):
            assert attributes.get(key, "#")[0] == "#" or attributes[key] == "data:,"
    assert "default-src 'none'" in text
    assert text.count("url(") == text.count("url(#")
    assert "@import" not in text


def test_what_clients_named_is_text_and_nothing_else(drawn):
    text, _ = drawn

    elements = Elements(text)

    assert [tag for tag, _ in elements.tags].count("script") == 1
    assert HOSTILE in html.unescape(text)
    assert HOSTILE not in text
    assert "<b>all</b>" not in text
    assert "<img" not in text
    assert "49" not in [part for part in re.findall(r"alert\(1\).{0,30}", text) if "{{" not in part]
    assert not [key for _, attributes in elements.tags for key in attributes if key[:2] == "on"]


def test_every_chapter_is_there_and_every_link_inside_leads_somewhere(drawn):
    text, _ = drawn

    elements = Elements(text)

    places = {attributes.get("id") for _, attributes in elements.tags}
    wanted = {attributes["href"][1:] for _, attributes in elements.tags if "href" in attributes}
    assert wanted - {"ata:,"} <= places
    assert places >= {
        "delay", "overhead", "loss", "convergence", "topology", "brokers", "traffic", "quality",
    }  # fmt: skip


def test_every_drawing_says_in_words_what_it_shows(drawn):
    text, _ = drawn

    drawings = [attributes for tag, attributes in Elements(text).tags if tag == "svg"]

    assert len(drawings) > 10
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawings)


def test_a_delay_that_cannot_be_believed_is_marked_and_left_out_of_the_worst(drawn):
    text, summary = drawn

    flagged = [
        row for row in example()["delay"] if row["scope"] == "pair" and row["quality"] == "flagged"
    ]

    assert len(re.findall(r'<td class="doubt"', text)) == len(flagged) == 1
    worst = [(row["origin"], row["destination"]) for row in summary["delay"]["slowest_pairs"]]
    assert (flagged[0]["origin"], flagged[0]["destination"]) not in worst
    assert summary["delay"]["pairs_by_quality"]["flagged"] == 1


def test_the_summary_says_first_what_is_worst(drawn):
    _, summary = drawn

    weights = [finding["weight"] for finding in summary["findings"]]
    texts = [finding["text"] for finding in summary["findings"]]

    assert summary["verdict"] == "unhealthy"
    assert weights == sorted(weights, key=["bad", "look", "note"].index)
    assert texts[0] == "Broker hall-3 (9) is down."
    assert any("QoS 1 did not arrive" in text for text in texts[:2])


def test_the_summary_quotes_the_tables(drawn):
    _, summary = drawn
    (overall,) = [row for row in example()["delay"] if row["scope"] == "all"]

    assert summary["version"] == SUMMARY_VERSION
    assert summary["delay"]["delay_us_p99"] == overall["delay_us_p99"]
    assert summary["overhead"]["overall"]["control_messages_per_announcement"] == 21.6
    assert summary["loss"]["missing"] == sum(row["missing"] for row in example()["loss"])
    assert summary["load"]["dead"] == [9]
    assert summary["quality"]["quarantined"] == 15
    assert '"verdict": "unhealthy"' in summary_json(summary)


def test_a_name_stands_beside_the_id_in_words_tables_and_the_map_and_programs_get_the_id(drawn):
    text, summary = drawn
    told = html.unescape(text)

    assert told.count("Kesselhaus S\u00fcd, 2. Stock (3)") > 10
    assert "Kesselhaus S\u00fcd,\u2026 (3)" in told
    assert "8 \u2013 9: 8, hall-3" in told
    assert '<th scope="row" title="hall-3 (1)">hall-3 (1)</th>' in text
    assert '<th scope="col" title="hall-3 (1)">1</th>' in text
    assert re.search(r'class="name">Kesselhaus S\u00fcd,\u2026</text>', text)
    assert "<title>broker hall-3 (9): down at the end</title>" in text
    assert "broker 4: " in told  # which has no name
    read = json.loads(summary_json(summary))
    assert read["load"]["dead"] == [9]
    assert read["load"]["names"] == {str(id): name for id, name in NAMES.items()}
    assert {type(row["origin"]) for row in read["delay"]["slowest_pairs"]} == {int}


def test_what_is_no_name_is_not_shown(tmp_path):
    told = [row | {"name": "a\u202eb\x1b"} for row in example()["brokers"]]
    write_tables(tmp_path, example() | {"brokers": told})

    tables = read_tables(tmp_path)

    assert "\u202e" not in page(tables, summarise(tables), made_at=MADE)
    assert "Broker 9 is down." in [each["text"] for each in summarise(tables)["findings"]]


def test_a_new_name_is_in_the_next_picture_of_the_same_topology():
    def drawing(name):
        rows = {"brokers": [{"broker": id, "name": name} for id in (1, 2)]}
        rows["links"] = [{"a": 1, "b": 2, "up_share": 1.0}]
        tables = tables_of(
            lambda choice: choice.take(pa.Table.from_pylist(rows.get(choice.name, [])))
        )
        return topology(liveness(tables), ())

    assert "broker one (1): alive" in drawing("one")
    assert "broker other (1): alive" in drawing("other")


def test_what_a_filter_costs_lies_between_a_copy_per_destination_and_a_way_per_copy():
    def carried(filter_, origin, destination):
        pair = {"origin": origin, "destination": destination}
        return pair | {"filter": filter_, "publications": 5, "bytes": 1_000, "rate_per_s": 1.0}

    def travelled(origin, destination, hops, publications):
        pair = {"origin": origin, "destination": destination}
        return pair | {"scope": "pair_hops", "hops": hops, "publications": publications}

    matrix = [carried("a", 1, 2), carried("a", 1, 3), carried("a", 1, 1), carried("b", 1, 4)]
    ways = [travelled(1, 2, 1, 10), travelled(1, 3, 2, 5), travelled(1, 3, 4, 5)]
    tables = Tables({"traffic_matrix": matrix, "delay": ways})

    section = traffic_section(tables, {"traffic": traffic_figures(tables)})

    (costs,) = (block for block in section.blocks if block.title == "What filters cost")
    assert costs.grid.rows == [["a", "2", "2 kB", "4 kB"], ["b", "1", "1 kB", DASH]]


def test_the_fullest_links_come_first_where_capacity_is_known_and_nowhere_else(drawn):
    text, summary = drawn
    links = [
        {key: value for key, value in row.items() if not key.startswith(("load", "capacity"))}
        for row in example()["links"]
    ]

    place = fragments(Tables({"links": example()["links"]}), summary)["topology"]
    without = fragments(Tables({"links": links}), summary)["topology"]

    assert text.index(": 83 % of 2 Mbit/s") < text.index(": 40 % of 2 Mbit/s")
    assert "Fullest links" in place
    assert "Fullest links" not in without


def test_the_heaviest_flows_come_first_and_their_names_are_text(drawn):
    text, summary = drawn

    place = fragments(Tables({"flows": example()["flows"]}), summary)["topology"]
    without = fragments(Tables({}), summary)["topology"]

    for shown_in in (text, place):
        told = shown_in[shown_in.index("Heaviest flows") :]
        assert told.index("1.60 Mbit/s") < told.index("press/#") < told.index("64 kbit/s")
        assert "<script>alert" not in told
    assert [row["origin"] for row in summary["load"]["heaviest_flows"]] == [1, 2]
    assert "Heaviest flows" not in without


def test_a_federation_without_a_fault_is_healthy():
    tables = example() | {"quarantine_counts": [], "events": [], "convergence": []}
    tables["links"] = [row | {"up_share": 1.0} for row in tables["links"]]
    tables["span"] = [row | {"restarts": 0, "dropped_batches": 0} for row in tables["span"]]
    tables["loss"] = [row | {"missing": 0} for row in tables["loss"]]
    tables["delay"] = [row | {"quality": "ok"} for row in tables["delay"]]
    filled = {
        name: [dict.fromkeys(REPORT_TABLES[name].names) | row for row in rows]
        for name, rows in tables.items()
    }

    text, summary = shown(filled)

    assert summary["verdict"] == "healthy"
    assert "Healthy: nothing was lost" in text


def test_no_record_at_all_is_said_and_nothing_is_drawn():
    text, summary = shown({})

    assert summary["verdict"] == "unknown"
    assert "no record was read" in text
    assert "<svg" not in text


def test_a_chapter_without_rows_says_so():
    text, _ = shown({"span": example()["span"]})

    assert text.count('<section id="') == 9
    assert text.count('<p class="absent">') == 7  # the last chapter always has something to say


def test_one_broker_alone_is_a_report(tmp_path):
    tables = example()
    alone = {name: tables[name][:1] for name in ("span", "brokers")}
    write_tables(tmp_path, alone | {"events": tables["events"][:1]})

    text, summary = shown(read_tables(tmp_path).rows)

    assert summary["load"]["brokers"] == 1
    assert summary["load"]["dead"] == []
    assert "No publication crossed from broker to broker." in text


def test_a_file_that_is_not_parquet_is_named(tmp_path):
    write_tables(tmp_path, {})
    (tmp_path / "delay" / "part-1.parquet").write_text("PAR1 not really")

    with pytest.raises(InputError, match="delay: not a readable Parquet table"):
        read_tables(tmp_path)


def test_files_of_a_write_under_way_are_not_read(tmp_path):
    write_tables(tmp_path, {})
    for hidden in (".part-1.parquet.crc", "_temporary/0/part-1.parquet", ".x.parquet"):
        path = tmp_path / "delay" / hidden
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")

    assert read_tables(tmp_path)["delay"] == []


def test_a_table_with_more_rows_than_are_read_is_said_to_be_cut(tmp_path):
    event = example()["events"][0]
    write_tables(tmp_path, {"span": example()["span"]})
    write_table(tmp_path, "events", [event] * (ROWS_MAX + 1))

    tables = read_tables(tmp_path)

    assert len(tables["events"]) == ROWS_MAX
    assert tables.cut == {"events": event["window_start"]}
    assert any("events" in each["text"] for each in summarise(tables, "")["findings"])


def happened(at_s, kind, broker=1, **keys):
    fields = dict.fromkeys(REPORT_TABLES["events"].names) | keys
    at = MADE + timedelta(seconds=at_s)
    return fields | {"window_start": at, "broker": broker, "kind": kind}


@pytest.fixture(scope="module")
def restless():
    """A day of routine, in which a link goes down once, and another as the last of all."""
    events = [happened(20 * n, "parent_changed", n % 9, subject=4) for n in range(4_320)]
    events += [happened(30_000, "link_down", 3, neighbour=7)]
    events += [happened(86_400, "link_down", 5, neighbour=8)]
    return Tables({"events": events})


def test_the_chart_of_events_leaves_nothing_out_and_shows_the_rarest_first(restless):
    section = convergence_section(restless, summarise(restless))
    chart = html.unescape(section.blocks[0].drawing)

    assert "12:00:00 UTC, broker 5: link down (neighbour 8)" in chart  # the newest, a day later
    assert "20:20:00 UTC, broker 3: link down (neighbour 7)" in chart
    drawn = [int(n.replace(",", "")) for n in re.findall(r"parent changed, ([\d,]+) times", chart)]
    assert sum(drawn) == 4_320
    assert len(drawn) <= MARKS + 1
    assert chart.index("link down (2)") < chart.index("parent changed (4,320)")
    assert "Left out" not in section.blocks[0].note


def test_routine_is_counted_and_does_not_bury_the_rest(restless):
    section = convergence_section(restless, summarise(restless))
    _, _, events, routine = section.blocks

    assert [row[2] for row in events.grid.rows] == ["link down", "link down"]
    assert len(routine.grid.rows) == 9
    assert routine.grid.rows[0][:3] == ["parent changed", "0", "480"]
    assert section.tiles[0].note == "4,320 of them routine"

    live = html.unescape(fragments(restless, summarise(restless))["events"])
    lines = re.findall(r"<span>(.*?)</span>", live)
    assert lines[0] == "broker 5: link down (neighbour 8)"
    assert lines[1].startswith("routine at 9 brokers since 20:20:")
    assert lines[2] == "broker 3: link down (neighbour 7)"
    assert len(lines) == 4


def test_kinds_beyond_those_drawn_are_said_to_be_left_out():
    kinds = [happened(n, f"kind_{n:02}") for n in range(KINDS_SHOWN)]
    tables = Tables({"events": [*kinds, *(happened(n, "parent_changed") for n in range(30))]})

    note = convergence_section(tables, summarise(tables)).blocks[0].note
    cut = Tables(tables.rows, {"events": MADE})

    assert note.endswith("Left out: 30 events of one more kind.")
    more = convergence_section(cut, summarise(cut)).blocks[0].note
    whole = " Whole from 2026-05-04 12:00:00 UTC on: the table is longer than is read."
    assert more == note + whole
