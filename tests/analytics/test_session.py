"""Starting Spark where something is missing."""

import subprocess
import sys

import pytest

COUNT = (
    "from federator_analytics.session import spark_session\n"
    "with spark_session('test', master='local[1]') as spark:\n"
    "    print(spark.range(3).count())"
)


@pytest.mark.timeout(600)
def test_it_starts_where_the_machines_own_name_leads_to_no_address():
    """As in a container that nothing gave a line of /etc/hosts."""
    nameless = ("unshare", "--uts", "sh", "-c", 'hostname nobody-knows-this && exec "$@"', "sh")

    counted = subprocess.run(
        [*nameless, sys.executable, "-c", COUNT], capture_output=True, text=True, check=False
    )

    assert counted.stdout == "3\n", counted.stderr
