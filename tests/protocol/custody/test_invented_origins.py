"""A member invents origins: those that others brought are followed still. docs/protocol.md 11."""

from federator.protocol.custody.receiver import SEQ_MAX, Receiver
from federator.protocol.types import Millis, Now
from tests.protocol.custody.frames import placed

KEY = b"aaaaaaaa"
HONEST, LIAR = 1, 9
ROOM = 10


class World:
    def __init__(self, *, room=ROOM):
        self.receiver = Receiver(origins_max=room)
        self.receiver.want(KEY, since_us=0)

    def arrive(self, origin, seq, *, by, prev=None, first=True):
        """The numbers that are delivered because this one came."""
        links = {KEY: seq - 1 if prev is None else prev}
        came = placed(origin, 7, seq, links, made_us=1_000_000, by=by)
        due = self.receiver.arrive(came, Now(Millis(1_000), 1_000_000), first=first)
        return [each.frame.seq for each in due]

    @property
    def followed(self):
        return set(self.receiver._origins)


def test_no_more_origins_are_followed_than_there_is_room_for():
    world = World()

    for origin in range(100, 1_000):
        world.arrive(origin, 1, by=LIAR)

    assert len(world.followed) == ROOM
    assert len(world.receiver) == ROOM
    assert world.receiver.unfollowed == 900 - ROOM


def test_what_others_brought_before_or_bring_later_takes_the_place_of_what_was_invented():
    world = World()
    world.arrive(1, 1, by=HONEST)
    for origin in range(100, 1_000):
        world.arrive(origin, 1, by=LIAR)

    world.arrive(2, 1, by=HONEST)

    assert {1, 2} <= world.followed
    assert len(world.followed) == ROOM
    assert world.arrive(1, 3, by=HONEST) == []  # a gap is noticed, as ever
    assert world.arrive(1, 2, by=HONEST) == [2, 3]


def test_what_is_not_followed_is_delivered_as_it_comes_and_once():
    world = World(room=1)
    world.arrive(1, 1, by=HONEST)

    assert world.arrive(2, 5, by=HONEST) == [5]
    assert world.arrive(2, 5, by=HONEST, first=False) == []
    assert world.arrive(2, SEQ_MAX + 1, by=HONEST) == []


def test_what_was_followed_in_an_earlier_life_stays():
    world = World(room=2)
    world.receiver.restore({(1, KEY): (7, 4), (2, KEY): (7, 4)}, now_ms=Millis(0))

    world.arrive(3, 1, by=HONEST)

    assert world.followed == {1, 2}


def test_who_is_forgotten_leaves_room():
    world = World(room=1)
    world.arrive(1, 1, by=HONEST)

    world.receiver.expire(Millis(10**10))
    world.arrive(2, 1, by=LIAR)

    assert world.followed == {2}
