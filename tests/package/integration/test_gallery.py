"""Each page of the gallery runs to its end, without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(path.name for path in EXAMPLES.glob("plot_*.py")))
def test_page_runs(page, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(EXAMPLES.parent)}
    command = [sys.executable, "-W", "error", str(EXAMPLES / page)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
