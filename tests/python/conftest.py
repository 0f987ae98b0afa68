"""What the tests share."""

import numpy as np
import pytest

import lathe
from lathe._ffi import call


def pytest_report_header(config):
    llvm, version = call("build_info")
    return f"lathe {lathe.__version__}, {'LLVM ' + version if llvm else 'without LLVM'}, {lathe.target.Target()}"


@pytest.fixture
def rng():
    """A generator with a fixed seed."""
    return np.random.default_rng(20)


BACKENDS = ["c"] + (["llvm -mcpu=native"] if call("build_info")[0] else [])


@pytest.fixture(params=BACKENDS, ids=lambda t: t.split()[0])
def target(request):
    """Each backend that runs here."""
    return request.param
