"""The programs that kill, starve and tire a cluster, with small numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("kills.py", "--kills", "6", "--seed", "1", "--seconds", "240"),
        ("soak.py", "--sweeps", "400"),
        ("memory.py", "--limits", "250", "800", "--rows", "20000"),
    ],
    ids=lambda command: command[0],
)
def test_program_finds_nothing(command):
    program, *options = command
    done = subprocess.run([sys.executable, HERE / program, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
