"""A real hub beside a simulated world: what it hears there it tells its leaf, within its bound."""

from lab.leaves.cost import Size, cost


async def test_a_leaf_hears_of_a_simulated_world_by_its_hub(tmp_path):
    found = await cost(tmp_path, Size(300, 9_000), changes_per_s=10, seconds=5)

    assert 1_000 < found.announced <= 3 * 1_000, "three hubs, each within its bound"
    assert 100 < found.told <= 3 * 1_000
    assert found.resident_bytes > 10_000_000
    assert found.quiet_bytes_per_s > 50
    assert found.bytes_per_s > 50
