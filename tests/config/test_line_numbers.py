"""The line reported for a key is the line it stands on."""

import random
import time
import tomllib

import pytest

from federator.config.complaints import line_of
from federator.config.reading import load
from federator.config.section import Location
from federator.errors import ConfigError

TEXT = '''\
# a comment with [brackets] = and "quotes
top = 1
"quoted.key" = 2
many = [
  1, # key = 1
  "]",
]
text = """
inner = 1
[inner]
"""
raw = \'\'\'x\'\'\'
inline = { a = 1, b = 2 }

[broker]
id = 1
dotted.key = 2
[[neighbours]]
url = "a"
[[neighbours]]
url = "b"
[ spaced . name ]
x = 1
'''


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (("top",), 2),
        (("quoted.key",), 3),
        (("many",), 4),
        (("many", 1), 4),
        (("text",), 8),
        (("raw",), 12),
        (("inline", "b"), 13),
        (("broker",), 15),
        (("broker", "id"), 16),
        (("broker", "dotted", "key"), 17),
        (("broker", "absent"), 15),
        (("neighbours", 0, "url"), 19),
        (("neighbours", 1, "url"), 21),
        (("neighbours", 1, "absent"), 20),
        (("spaced", "name", "x"), 23),
        (("inner",), None),
        (("key",), None),
        (("absent",), None),
    ],
)
def test_a_key_is_found_on_its_line(location, line):
    tomllib.loads(TEXT)  # the text is valid

    assert line_of(TEXT, location) == line


def test_every_key_of_a_random_file_is_found_where_it_was_written():
    rng = random.Random(1)
    values = (
        "1",
        '"a # [b]"',
        "'x = 1'",
        "[1,\n 2]",
        '"""\nk = 1\n"""',
        "{ q = 1 }",
        '[\n["s0"],\n]',
    )
    for _ in range(200):
        lines = 0
        text = ""
        wanted: dict[Location, int] = {}
        for section in range(rng.randint(1, 4)):
            text += f"[s{section}]\n"
            lines += 1
            for key in range(rng.randint(0, 4)):
                value = rng.choice(values)
                wanted[f"s{section}", f"k{key}"] = lines + 1
                text += f"k{key} = {value}\n"
                lines += 1 + value.count("\n")
        tomllib.loads(text)

        assert {place: line_of(text, place) for place in wanted} == wanted


def test_many_mistakes_in_a_long_list_are_told_at_once(tmp_path):
    """In a second on a calm machine: a file may have thousands of lines with brackets."""
    entries = "".join(f'  {{ id = {number}, uri = "mqtt://b" }},\n' for number in range(2, 302))
    path = tmp_path / "federator.toml"
    path.write_text(f'neighbours = [\n{entries}]\n[broker]\nid = 1\nurl = "mqtt://h"\n')
    begun_s = time.process_time()

    with pytest.raises(ConfigError, match="did you mean url"):
        load(path, {})

    assert time.process_time() - begun_s < 10
