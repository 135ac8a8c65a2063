"""Which broker serves a group, and what is owed to it until that is confirmed."""

from collections import Counter
from pathlib import Path

from federator.protocol.messages.group_records import MemberRecord
from federator.protocol.sharing.assignment import Assignment
from federator.protocol.sharing.ledger import Held, Ledger, Owed
from federator.protocol.sharing.membership import Membership
from federator.protocol.sharing.parcels import Arrivals
from federator.protocol.sharing.returns import Returns, publication_name
from tests.protocol.sharing.test_ledger import GROUPS, SPANS
from tests.transcripts import play, scenes


class Stage:
    """A ledger. A command begins with the time in ms; ``2:1`` is the parcel 1 for broker 2.

    Prints what is sent or given up (``later`` with the time of each), and how many publications
    and bytes are kept, when that changed.
    """

    def __init__(self):
        self.ledger = Ledger(SPANS)

    def do(self, now_ms, command, *words):
        before = self._state()
        yield from getattr(self, f"_{command}")(int(now_ms), *words) or ()
        if (state := self._state()) != before:
            yield state

    def _state(self):
        return f"keeps {len(self.ledger)} in {self.ledger.bytes} bytes"

    def _owe(self, now_ms, to, size="10"):
        run = b"x" * int(size)
        sends = self.ledger.owe(int(to), Held(GROUPS, run, 1, now_ms), now_ms=now_ms)
        return ["no room"] if sends is None else sent(sends)

    def _confirm(self, now_ms, to, *ranges):
        numbers = [tuple(map(int, each.split("-"))) for each in ranges]
        return sent(self.ledger.confirm(int(to), numbers, now_ms=now_ms))

    def _later(self, now_ms):
        while (at_ms := self.ledger.next_deadline_ms()) is not None and at_ms <= now_ms:
            sends, lost = self.ledger.on_deadline(now_ms=at_ms)
            yield from (f"{at_ms}: {what}" for what in sent(sends))
            for each in lost:
                lost_name = name(each) if isinstance(each, Owed) else each.run[:1].decode()
                yield f"{at_ms}: gives up {lost_name}"

    def _gone(self, now_ms, to):
        return [f"leaves {name(owed)}" for owed in self.ledger.gone(int(to))]

    def _hold(self, now_ms, letter, size):
        held = Held(GROUPS, letter.encode() * int(size), 2, now_ms)
        return [] if self.ledger.hold(held, now_ms=now_ms) else ["no room"]

    def _take_held(self, now_ms):
        return [f"takes {held.run[:1].decode()}" for held in self.ledger.take_held()]


def name(owed):
    return f"{owed.to}:{owed.number}"


def sent(sends):
    names = [name(owed) for owed in sends]
    return [f"sends {' '.join(names)}"] if names else []


class AssignmentStage:
    """Members of groups at brokers, and what one broker decides.

    ``members 1:2 2:1x`` are two members of ``$share/g/jobs/#`` at broker 1, and one beside ordinary
    subscribers at broker 2; ``members h/x/+ 1:1`` names a group and its filter. ``here 9`` decides
    for broker 9. ``share``, ``taken`` and ``again`` print how often each broker is picked.
    """

    def __init__(self):
        self.known = Membership()

    def do(self, command, *words):
        yield from getattr(self, f"_{command}")(*words) or ()

    def _members(self, *words):
        for record in members_in(words):
            self.known.add(record)
            self.known.reach(record.broker)

    def _left(self, *words):
        for record in members_in(words):
            self.known.discard(record)

    def _brokers(self):
        members = self.known.brokers(JOBS).items()
        yield ", ".join(f"{broker}: {found.count}" for broker, found in members) or "none"

    def _lost(self, broker):
        self.known.reach(int(broker), False)

    def _why(self, group):
        yield str(self.known.why_inexact(key_in(group)))

    def _here(self, broker, *options):
        fields = dict(option.partition("=")[::2] for option in options)
        orphans = frozenset(key_in(text) for text in [fields.get("orphan")] if text)
        self.made = Assignment(int(broker), stand_ins_max=int(fields.get("stand_ins_max", 8)))
        self.made.update(self.known, watched="watched" in fields, orphans=orphans)
        yield f"stand-ins {named(self.made.stand_ins)}"
        yield f"wants {', '.join(sorted(self.made.wanted)) or 'nothing'}"

    def _share(self, topic, count="1"):
        share = self.made.share(topic)
        yield from [*turns(share.picks, int(count))] or ["no picks"]
        facts = {"served here": share.served_here, "stood in": share.stood_in}
        yield from [fact for fact, holds in facts.items() if holds]
        if share.orphans:
            yield f"kept for {', '.join(map('/'.join, share.orphans))}"

    def _taken(self, topic, count="1"):
        pick = self.made.taken(topic)
        yield from [*turns([pick] if pick else [], int(count))] or ["no members elsewhere"]

    def _again(self, count, *groups):
        yield from [*turns(self.made.again(map(key_in, groups)), int(count))] or ["no picks"]

    def _knows(self, *groups):
        yield ", ".join(str(self.made.knows(key_in(group))) for group in groups)


class ArrivalStage:
    """Parcels of epoch 7 from neighbour 1, and notes about what we published at time 0.

    ``admit 1:2`` is parcel 2 of origin 1, ``published 1:2 10`` its position in what our broker
    gets, and ``settle 9`` what that acknowledged. ``noted jobs/1 x 3`` is the third try to publish,
    and ``back jobs/1 x`` prints which try came back.
    """

    def __init__(self):
        self.arrivals, self.returns = Arrivals(), Returns()

    def do(self, command, *words):
        arrivals = self.arrivals
        match command, *words:
            case "admit", *names:
                firsts = [arrivals.admit(origin, 7, n, sender=1) for origin, n in pairs(names)]
                yield f"{sum(firsts)} new of {len(firsts)}"
            case "published", *names, position:
                for origin, number in pairs(names):
                    arrivals.published(origin, 7, number, int(position))
            case "settle", through:
                arrivals.settle(int(through))
                for origin, told in arrivals.confirmations():
                    assert told.epoch == 7
                    ranges = " ".join(f"{first}-{last}" for first, last in told.ranges[:3])
                    more = f" and {len(told.ranges) - 3} more" * (len(told.ranges) > 3)
                    yield f"confirms {ranges}{more} to {origin}"
                yield "busy" if arrivals.busy else "idle"
            case "noted", topic, payload, tries:
                name = publication_name(topic, payload.encode())
                self.returns.note(name, int(tries), now_ms=0)
            case "back", topic, payload:
                name = publication_name(topic, payload.replace("NUL", "\0").encode())
                yield str(self.returns.take(name, now_ms=0))


def pairs(names):
    """``1:1`` or ``2:1-999/2``: every second number."""
    for origin, numbers in (name.split(":") for name in names):
        first, _, rest = numbers.partition("-")
        last, _, step = rest.partition("/")
        for number in range(int(first), int(last or first) + 1, int(step or 1)):
            yield int(origin), number


JOBS = ("g", "jobs/#")
STAGES = {"arrivals": ArrivalStage, "assignment": AssignmentStage, "ledger": Stage}


def key_in(text):
    group, _, filter_ = text.partition("/")
    return group, filter_


def members_in(words):
    key, pairs = (key_in(words[0]), words[1:]) if "/" in words[0] else (JOBS, words)
    for broker, count in (pair.split(":") for pair in pairs):
        yield MemberRecord(int(broker), int(count.rstrip("x")), count.endswith("x"), *key)


def named(by_key):
    return ", ".join(f"{'/'.join(key)} {count}" for key, count in by_key.items()) or "none"


def turns(picks, count):
    """For each pick how often each broker is next, and for the groups of the pick."""
    for pick in picks:
        found = Counter(pick.next() for _ in range(count))
        served = " ".join(map("/".join, pick.serves))
        yield f"{', '.join(f'{broker}: {n}' for broker, n in sorted(found.items()))} for {served}"


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, STAGES[path.stem]())
