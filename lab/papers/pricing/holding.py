"""When whoever is fed leaves its parent, once demand has lasted: rarely, and never for a whim.

Three keys open the lock. The way is lost: the parent was silent under several numbers in a row
(one silence may be a lost message, so what it said last is believed once more), or it is fed by us.
The link that feeds us, or somebody above us, is too full and we or they are to leave it. Or another
way was better by a margin, which grows with the age of demand, under two numbers in a row. All
else, and with it every chain of small reactions, is shut out, so the world comes to rest.
"""

from dataclasses import dataclass
from enum import Enum, auto

from lab.papers.pricing.messages import Route

SILENCES_MAX = 2  # numbers under which the parent may say nothing before it counts as lost
WISHES = 2  # numbers in a row under which the same neighbour must be better


class Verdict(Enum):
    """What a broker does about its parent."""

    STAY = auto()
    REPEAT = auto()
    MOVE = auto()


@dataclass(slots=True)
class Hold:
    """What keeps a broker with its parent."""

    said: Route | None = None  # the parent's last word under an earlier number
    silences: int = 0  # numbers in a row under which it said nothing, or that its way leads over us
    contender: int | None = None  # who was better last
    wishes: int = 0  # how often in a row

    def judge(
        self,
        parent: int,
        ways: dict[int, float],
        *,
        margin: float,
        pressed: bool,
        circle: bool = False,
    ) -> tuple[Verdict, int]:
        """What to do, and the neighbour to go to.

        ``ways`` are what the way over each neighbour costs under the newest number, circles left
        out. A move must gain ``margin``, unless we, or somebody on our way, are ``pressed`` to
        leave the link that feeds us. A ``circle``: the parent moved when we did, over us.
        """
        others = [neighbour for neighbour in ways if neighbour != parent]
        contender = min(others, key=lambda each: (ways[each], each), default=parent)
        if parent not in ways:
            self.silences += 1
            lost = (circle or self.silences > SILENCES_MAX) and contender != parent
            return (Verdict.MOVE if lost else Verdict.REPEAT), contender
        self.silences = 0
        if contender == parent or ways[parent] - ways[contender] <= (0.0 if pressed else margin):
            self.contender, self.wishes = None, 0
            return Verdict.STAY, parent
        self.wishes = self.wishes + 1 if contender == self.contender else 1
        self.contender = contender
        ready = pressed or self.wishes >= WISHES
        return (Verdict.MOVE if ready else Verdict.STAY), contender
