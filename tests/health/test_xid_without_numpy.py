"""The check of XIDs reads detection's table, but runs where detection's libraries are not."""

import subprocess
import sys

CODE = """
import sys
sys.modules["numpy"] = None  # as where it is not installed
from heeler.health.checks import xid
assert xid._table()["79"]["meaning"]
assert "heeler.detect" not in sys.modules
"""


def test_the_table_of_xids_is_read_without_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
