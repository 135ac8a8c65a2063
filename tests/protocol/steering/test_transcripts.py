"""What an agent does of a steerer's plans: trees, and topics at the edge. docs/protocol.md 18."""

from pathlib import Path

import msgspec

from federator.protocol.forwarding.trees import TreeTable
from federator.protocol.messages.control import TreeTorn
from federator.protocol.messages.destinations import tree_key
from federator.protocol.messages.steering import STEERING_VERSION, Plan, Tree, tree_number
from federator.protocol.steering.edge_follower import EdgeFollower
from federator.protocol.steering.follower import PlanFollower
from federator.protocol.steering.plan_book import PlanBook
from federator.protocol.types import Now
from tests.transcripts import play, scenes

WALL_MS = 1_790_000_000_000
EDGES = ((1, 2), (2, 3), (2, 4), (1, 5))
KEY = tree_key(tree_number(Tree(1, ("a/#", "a/b"), EDGES)))


class Stage:
    """The agent of broker 2; its neighbours are 1 to 9.

    Prints what a command changes, notices, and reports to neighbours. The plan has the tree from 1
    to 2 and 5, and from 2 to 3 and 4, or that of ``edges=1-2,2-3``; with ``besides=x`` one more, of
    another flow. ``age=400`` is how long ago, in ms, it was made. ``strays 1``: broker 1 sends a
    frame of a tree that does not hold here.
    """

    def __init__(self):
        self._agent()

    def _agent(self, *options):
        """``broker=1``; ``forbidden``: no steerer may place topics; ``obstacle=...``."""
        told = dict(option.partition("=")[::2] for option in options)
        self.broker, self.ms, self.said = int(told.pop("broker", 2)), 0, []
        self.trees, self.plan = TreeTable(), None
        for neighbour in range(1, 10):
            self.trees.reach(neighbour, True)
        self.straight, self.meshed = {"a/#"}, set()
        self.edge = EdgeFollower(
            keep=lambda policy, now: self.said.append(f"keeps {policy or 'nothing'}"),
            collect=lambda filters: self.said.append(
                f"collects {' '.join(sorted(filters)) or '-'}"
            ),
            note=self._note,
            asks_straight=lambda filter: filter in self.straight,
            asks_in_mesh=lambda filter: filter in self.meshed,
            allowed=told.pop("forbidden", None) is None,
            **told,
        )
        self.follower = PlanFollower(
            PlanBook("fed", self.broker),
            self,
            self.broker,
            self._tell,
            self._note,
            self.edge.follow,
        )

    def do(self, command, *words):
        self.said, before = [], self._state()
        yield from getattr(self, f"_{command}")(*words) or ()
        yield from self.said
        yield from (now for now, then in zip(self._state(), before, strict=True) if now != then)

    def _state(self):
        plan, due_ms = self.follower.plan(self.ms), self.follower.due_ms
        holds = f"{plan.steerer} holds" if plan else "no plan holds"
        return holds, f"due {due_ms}", f"{self.follower.refused} refused"

    @property
    def now(self):
        return Now(self.ms, (WALL_MS + self.ms) * 1_000)

    def _note(self, notice):
        if notice.name not in ("steer.keeps", "steer.collects"):
            self.said.append(" ".join([notice.name, *map(str, notice.details.values())]))

    def _tell(self, neighbour, message):
        assert message == TreeTorn(self.broker, KEY)
        self.said.append(f"tells {neighbour}")

    # -- the data plane, as far as it follows trees --

    def follow_trees(self, trees, now):
        if self.trees.replace(trees, self.broker):
            self.trees_changed(now)

    def trees_changed(self, now):
        self.said.append(f"{len(self.trees)} trees, {self.trees.torn} torn")

    # -- commands --

    def _plan(self, number, *options):
        told = {"version": STEERING_VERSION, "federation": "fed", "broker": self.broker}
        told |= {"steerer": "s", "since_ms": 0, "number": number, "valid_ms": 1_000, "age": 0}
        told |= dict(option.split("=") for option in options)
        edges = [each.split("-") for each in told.pop("edges", "").split(",") if each] or EDGES
        told["made_ms"] = WALL_MS + self.ms - int(told.pop("age"))
        told["trees"] = [{"origin": 1, "filters": ["a/#", "a/b"], "edges": edges}]
        if other := told.pop("besides", None):
            told["trees"].append({"origin": 1, "filters": [other], "edges": [[1, 2]]})
        if crowd := told.pop("crowd", None):
            told["collects"] = ",".join(f"{'x' * 1_000}{n}" for n in range(int(crowd)))
        told["collects"] = told["collects"].split(",") if "collects" in told else []
        self.plan = msgspec.convert(told, Plan, strict=False)
        self.follower.on_plan(self.plan, self.now)

    def _again(self):
        self.follower.on_plan(self.plan, self.now)

    def _clear(self):
        self.follower.on_plan(None, self.now)

    def _time(self, ms):
        self.ms = int(ms)
        self.follower.on_time(self.now)

    def _strays(self, sender):
        self.follower.on_torn(KEY, int(sender), self.now)

    def _torn(self, sender, *, key=KEY):
        self.follower.on_message(TreeTorn(int(sender), key), self.now)

    def _torn_unknown(self, sender):
        self._torn(sender, key=tree_key(5))

    def _lost(self, neighbour):
        self.trees.reach(int(neighbour), False)

    def _steps(self, *destinations, origin=None):
        steps = self.trees.steps(KEY, frozenset(map(int, destinations)), origin=origin)
        yield f"to {list(steps.children)}, left {sorted(steps.left)}"

    def _steps_of(self, origin, *destinations):
        return self._steps(*destinations, origin=int(origin))

    def _flow(self, *filters):
        yield "by a tree" if self.trees.of_flow(filters) == KEY else "as ordinary"

    def _allow(self):
        self.edge.allow(True, self.now)

    def _forbid(self):
        self.edge.allow(False, self.now)

    def _doubt(self):
        self.edge.doubt(True, self.now)

    def _certain(self):
        self.edge.doubt(False, self.now)

    def _mesh(self, filter):
        self.straight.discard(filter)
        self.meshed.add(filter)

    def _load(self):
        told = self.edge.report(0.0, 0.0)
        if told is None:
            yield "nothing to tell"
        else:
            allowed = "allowed" if told.allowed else "not allowed"
            yield f"{allowed}, collects {list(told.collects)}; {told.why_not or 'followed'}"


@scenes(*(Path(__file__).with_name(f"{name}.txt") for name in ("plans", "edge", "trees")))
def test_transcript(path, number):
    play(path, number, Stage())
