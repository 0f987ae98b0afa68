"""Targets."""

import threading

import pytest

import lathe as tvm
from lathe.target import Target


def test_strings():
    t = Target("llvm -mcpu=native")
    assert t.kind.name == "llvm" and str(t).startswith("llvm") and t.is_host and t.keys == ["cpu"]
    assert t.mtriple and t.vector_width >= 128 and t.num_cores >= 1 and t.l1_bytes > 0
    assert Target("c").kind == "c" and Target("cuda -arch=sm_90").arch == "sm_90" and Target("cuda").keys == ["cuda", "gpu"]
    assert Target(t) == t and hash(Target("c")) == hash(Target("c")) and Target("c") != t
    with pytest.raises(AttributeError, match="nothing"):
        t.nothing


def test_dictionaries():
    t = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+dotprod", "+fullfp16"]})
    assert t.mtriple.startswith("aarch64") and "dotprod" in t.features and "sve" not in t.features
    with pytest.raises(ValueError, match="kind"):
        Target({"mcpu": "native"})


def test_current_target():
    assert Target.current() is None
    with Target("c") as t:
        assert Target.current() is t
        with Target("llvm") as u:
            assert Target.current() == u
        assert Target.current() == t
        seen = []
        thread = threading.Thread(target=lambda: seen.append(Target.current()))
        thread.start()
        thread.join()
        assert seen == [None]
    with pytest.raises(ValueError):
        Target.current(allow_none=False)


def test_host():
    assert Target().is_host and set(Target.list_kinds()) >= {"llvm", "c", "cuda"}
    t = Target("cuda", host="llvm")
    assert t.host == Target("llvm") and tvm.target.llvm("-mcpu=native") == Target("llvm -mcpu=native")


def test_enabled():
    assert tvm.runtime.enabled("c") and tvm.runtime.enabled("cuda -arch=sm_80") and not tvm.runtime.enabled("abacus")
    assert tvm.runtime.enabled("llvm") == tvm._ffi.call("build_info")[0]


def test_host_features_are_what_the_runtime_sees():
    from lathe._ffi import library

    seen = set(library.runtime().lathe_rt_cpu_features().decode().split(","))
    assert set(Target("llvm -mcpu=native").features) <= seen
