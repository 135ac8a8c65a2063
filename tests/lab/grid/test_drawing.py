"""The picture of a mesh."""

from federator.protocol.types import BrokerId
from lab.grid.report import draw
from lab.grid.topology import Grid, expected_mesh
from tests.lab.grid.ids import ids


def test_the_papers_mesh_is_drawn_with_its_roles_and_parents():
    grid = Grid(3, 3)
    mesh = expected_mesh(grid, ids(2, 7), redundancy=2)

    lines = draw(grid, mesh, subscribers=ids(2, 7), publisher=BrokerId(6))

    assert lines == [
        "· 0   ───▷ ○ 1   ━━━▶ ◉ 2 S",
        "△          ▲          ▲",
        "· 3   ───▷ ○ 4   ━━━▶ ○ 5",
        "△          ▲          ▲",
        "· 6 P ───▷ ● 7 S ━━━▶ ○ 8",
    ]


def test_a_link_that_nobody_uses_towards_the_core_is_a_plain_line():
    grid = Grid(2, 2)
    mesh = expected_mesh(grid, ids(0), redundancy=1)

    lines = draw(grid, mesh, subscribers=ids(0), publisher=BrokerId(0))

    assert lines == [
        "◉ 0 SP ◁─── · 1",
        "△           △",
        "· 2    ──── · 3",
    ]
