"""What a leaf costs: beside a small world and beside a large one."""
