# SPDX-License-Identifier: Apache-2.0
"""Makes the memory of this host a little short, for servers whose setting parked_free_percent is near what is available."""
import contextlib
import subprocess
import sys

import pytest

MARGIN = 8  # percent that other programs may take meanwhile

# Takes memory in small pieces until less than so many percent are available, and keeps it until its stdin ends.
HOLD = """import sys
sys.path.insert(0, sys.argv[2])
from pressure import available_percent
held = []
while available_percent() > int(sys.argv[1]):
    held.append(b"x" * (32 << 20))
print(1, flush=True)
sys.stdin.read()
"""


def available_percent():
    with open("/proc/meminfo") as file:
        info = dict(line.split(":") for line in file)
    return 100 * int(info["MemAvailable"].split()[0]) // int(info["MemTotal"].split()[0])


def choose_percent():
    """A value of parked_free_percent with which memory is not short now, and can be made short without harm."""
    percent = available_percent() - MARGIN
    if percent < 20:
        pytest.skip("too little memory is available to take some of it")
    return percent


@contextlib.contextmanager
def short_of_memory(percent):
    """Less than so many percent are available."""
    hog = subprocess.Popen([sys.executable, "-c", HOLD, str(percent - 3), str(__file__.rpartition("/")[0])],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert hog.stdout.readline() == b"1\n"
        yield
    finally:
        hog.communicate(b"")
