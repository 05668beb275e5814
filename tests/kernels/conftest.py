# SPDX-License-Identifier: Apache-2.0

import pytest

import kernellib


@pytest.fixture
def start(tmp_path):
    """Makes kernels of any kind, in a directory of their own, and ends them."""
    made = []

    def make(kind, **options):
        options.setdefault("cwd", str(tmp_path))
        made.append(kernellib.Kernel(kind, **options))
        return made[-1]
    yield make
    for kernel in made:
        kernel.close()
