"""The Python that tests fork for their programs, in environments of users, who have not all of the engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.mark.modern
def test_a_program_runs_where_torch_is_not_installed():
    """As for a Keras user, by ``tools/ten_minutes.py``."""
    code = (
        "import os, sys, numpy, warm_server\n"
        "assert 'torch' not in sys.modules\n"
        "files = [os.dup(number) for number in range(3)]\n"
        "request = {'environment': dict(os.environ), 'folder': os.getcwd()}\n"
        "warm_server.become(request, files, sys.executable)\n"
        "print('runs')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(HELPERS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("runs\n", 0), done.stderr
