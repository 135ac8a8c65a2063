"""Tells one story of an attack: nothing promised is lost, and no stranger is believed.

Under a stranger everything holds that holds without one, and while nothing else goes wrong no link
goes down. Under a member that lies QoS 1 reaches everybody who was promised it, perhaps more than
once; what it makes up may arrive (docs/security.md, "What is not answered").

Source: docs/simulator.md; docs/security.md.
"""

from lab.sim.attack.moves import schedule_moves
from lab.sim.attack.story import AttackStory
from lab.sim.attack.world import AttackedWorld, StrangersInvariants
from lab.sim.campaign import SeedResult
from lab.sim.messages.campaign import tell
from lab.sim.watcher import Watcher


def run_attack(story: AttackStory) -> SeedResult:
    """Run one seed to its end or to the first violation."""
    beneath = story.beneath
    strangers = StrangersInvariants()
    watcher = strangers if story.member is None else Watcher()
    world = AttackedWorld(beneath.plan, seed=beneath.seed, watcher=watcher)
    strangers.attach(world)
    world.ledger.lied_to = story.member is not None
    schedule_moves(world, story)

    def stood() -> None:
        strangers.links_stay = story.calm

    return tell(world, beneath, stood=stood)
