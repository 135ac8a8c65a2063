"""What a steered run is judged by, and its picture, by hand."""

from lab.steered.drawing import picture
from lab.steered.narrow import CAPACITY, DEMANDS, GRID, Spell
from lab.steered.run import Outcome
from lab.steered.traffic import Arrived

WAYS = [way for link in GRID.links for way in ((link.a, link.b), (link.b, link.a))]


def spell(*, came=100, fullest=0.5, delay_ms=10.0, control=0.001):
    arrived = Arrived(100, came, 0, (delay_ms,) * came)
    loads = dict.fromkeys(WAYS, 0.1 * CAPACITY) | {WAYS[0]: fullest * CAPACITY}
    return Spell(dict.fromkeys(DEMANDS, arrived), loads, control)


def outcome(*, moved_s=20.0, **steered):
    full = spell(came=60, fullest=1.1, delay_ms=900.0)
    return Outcome([full], [spell(**steered)], [spell()], [moved_s])


def missed(found):
    return [each.text.split()[0] for each in found.verdicts() if not each.held]


def test_what_is_wanted_is_held():
    assert missed(outcome()) == []
    assert missed(outcome(delay_ms=13.0, fullest=0.95, moved_s=30)) == []


def test_each_thing_that_is_not_so_is_missed():
    assert missed(outcome(came=99)) == ["lost"]
    assert missed(outcome(fullest=0.96)) == ["fullest"]
    assert missed(outcome(delay_ms=13.1)) == ["p99"]
    assert missed(outcome(moved_s=31)) == ["a"]
    assert missed(outcome(control=0.02)) == ["loads"]
    assert set(missed(outcome(came=0))) == {"lost", "p99"}


def test_the_picture_shows_each_direction_of_each_link_before_and_after():
    found = outcome()
    drawn = picture(found.plain[-1], found.steered[-1])

    assert drawn.count("<line") == 2 * len(WAYS)
    assert "110%" in drawn
    assert "without a steerer: 40.0% lost" in drawn
