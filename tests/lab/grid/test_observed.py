"""What agents tell is held against the expected mesh, and any difference is named."""

import copy

import pytest

from lab.grid.topology import Grid, announced, expected_mesh, mesh_fault, observed_mesh
from tests.lab.grid.ids import ids

FILTER = "f"
GRID = Grid(3, 3)
MESH = expected_mesh(GRID, ids(2, 7), redundancy=2)


def statuses():
    """What nine agents of the paper's grid tell when all is well."""
    told = {}
    for here in GRID.ids:
        member = here in MESH.members
        parents = list(MESH.parents.get(here, ()))
        hops = [*parents, *MESH.children(here)] if member else parents[-1:]
        told[here] = {
            "own_core": {"seq": 9 if here == 2 else 0},
            "cores": [] if here == 2 else [{"core": 2, "seq": 9, "parents": parents}],
            "meshes": [{"filter": FILTER, "core": 2, "member": member, "next_hops": hops}],
            "counters": {"control_sent": {"core_ann": 10, "hello": 1}},
        }
    return copy.deepcopy(told)


def test_the_expected_mesh_has_no_fault_and_is_read_back():
    told = statuses()

    assert mesh_fault(told, FILTER, MESH) is None
    assert observed_mesh(told, FILTER) == MESH


@pytest.mark.parametrize(
    ("broker", "change", "complaint"),
    [
        (3, lambda s: s["meshes"].clear(), "broker 3 does not know"),
        (4, lambda s: s["meshes"][0].update(core=7), "takes 7 for the core"),
        (0, lambda s: s["meshes"][0].update(member=True), "broker 0 is a member"),
        (8, lambda s: s["meshes"][0].update(member=False), "broker 8 is no member"),
        (7, lambda s: s["cores"][0].update(parents=[4]), "broker 7 has parents"),
        (5, lambda s: s["meshes"][0].update(next_hops=[2, 4]), "broker 5 sends to"),
        (6, lambda s: s["meshes"][0].update(next_hops=[3, 7]), "broker 6 relays to"),
        (6, lambda s: s["meshes"][0].update(next_hops=[3]), "broker 6 relays to"),
        (6, lambda s: s["meshes"][0].update(next_hops=[]), "broker 6 relays to"),
    ],
)
def test_every_difference_is_named(broker, change, complaint):
    told = statuses()
    change(told[broker])

    assert complaint in (mesh_fault(told, FILTER, MESH) or "")


def test_announcements_and_their_messages_are_summed_over_all_agents():
    counted = announced(statuses())

    assert (counted.made, counted.messages, counted.heard) == (9, 90, True)


def test_an_announcement_under_way_shows():
    told = statuses()
    told[ids(0)[0]]["cores"][0]["seq"] = 8

    assert not announced(told).heard
