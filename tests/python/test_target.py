"""Targets."""

import threading

import pytest

import lathe as tvm
from lathe.target import Target


def test_strings():
    t = Target("llvm -mcpu=native")
    assert t.kind.name == "llvm" and str(t).startswith("llvm") and t.is_host and t.keys == ["cpu"]
    assert t.mtriple and t.vector_width >= 128 and t.num_cores >= 1 and t.l1_bytes > 0
    assert (
        Target("c").kind == "c"
        and Target("cuda -arch=sm_90").arch == "sm_90"
        and Target("cuda").keys == ["cuda", "gpu"]
    )
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


def test_device_and_code_generator_are_two_things():
    for text, device, number, codegen in [
        ("llvm", "cpu", 1, "llvm"),
        ("c", "cpu", 1, "c"),
        ("c -mcpu=cortex-m4", "microcontroller", 1, "c"),
        ("cuda", "gpu", 2, "cuda"),
        ("opencl", "gpu", 4, "none"),
        ("hexagon", "accelerator", 16, "none"),
    ]:
        t = Target(text)
        assert (t.device, t.get_target_device_type(), t.codegen) == (device, number, codegen)
        assert t.kind.device_type == number
    with pytest.raises(tvm.error.UnsupportedError, match="no code generator for opencl"):
        a = tvm.te.placeholder((4,), name="a")
        b = tvm.te.compute((4,), lambda i: a[i] + 1)
        tvm.build(tvm.te.create_schedule(b.op), [a, b], target="opencl")


def test_host_beside():
    t = Target("cuda -arch=sm_80", host="llvm -mcpu=native")
    assert t.host.kind.name == "llvm" and str(t) == "cuda -arch=sm_80"
    assert t.with_host("c").host == Target("c") and t.host == Target("llvm -mcpu=native")
    assert t != Target("cuda -arch=sm_80") and Target(t) == t
    assert Target({"kind": "cuda", "host": {"kind": "llvm", "mcpu": "native"}}).host == t.host
    with pytest.raises(ValueError, match="'cuda' is not a CPU"):
        Target("llvm", host="cuda")


def test_what_was_said():
    t = Target("opencl -device=mali -model=g72 -libs=a,b -max_num_threads=128 -max_block_size_x=64")
    assert t.keys == ["mali", "opencl", "gpu"] and t.device_name == "mali" and t.model == "g72" and t.libs == ["a", "b"]
    assert t.max_num_threads == 128 and t.max_block_size_x == 64 and t.attrs["libs"] == ["a", "b"]
    u = Target("cuda")
    assert u.max_num_threads == 1024 and u.thread_warp_size == 32 and u.model == "unknown" and u.libs == []
    assert Target("llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod,+fullfp16").mattr == ["+dotprod", "+fullfp16"]
    assert Target("rocm").thread_warp_size == 64 and u.get_kind_attr("keys") == ["cuda", "gpu"]


def test_export_reads_back():
    for t in [
        Target("llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu -num-cores=16 -mattr=+avx512f,-avx512bf16"),
        Target("cuda -arch=sm_86 -max_threads_per_block=512", host="llvm -mcpu=native"),
        Target("nvidia/jetson-agx-xavier"),
    ]:
        d = t.export()
        again = Target(d)
        assert again.export() == d and again.kind == t.kind and again.mcpu == t.mcpu
        assert (again.host is None) == (t.host is None) and (t.host is None or again.host.mcpu == t.host.mcpu)
        assert Target(__import__("json").dumps(d)).export() == d
    assert Target("llvm -num-cores=16").export()["num-cores"] == 16


def test_tags():
    t = Target("nvidia/geforce-rtx-3090")
    assert t.kind.name == "cuda" and t.arch == "sm_86" and t.tag == "nvidia/geforce-rtx-3090"
    assert Target({"tag": "nvidia/nvidia-a100"}).arch == "sm_80" and t.registers_per_block == 65536
    assert Target("nvidia/jetson-nano").host.mcpu == "cortex-a57"
    assert all(x.tag == name for name, x in tvm.target.list_tags().items())
    made = tvm.target.register_tag("mine/board", {"kind": "c", "mcpu": "cortex-m4"}, override=True)
    assert made.device == "microcontroller" and Target("mine/board") == made
    with pytest.raises(ValueError, match="taken"):
        tvm.target.register_tag("mine/board", {"kind": "c"})
    with pytest.raises(ValueError, match="no tag 'nobody/nothing'"):
        Target({"tag": "nobody/nothing"})
    with pytest.raises(ValueError, match="begins like JSON"):
        Target("{kind: llvm")


def test_forms_that_programs_hand_over():
    assert Target.canon_target(None) is None and Target.canon_target("c") == Target("c")
    t, h = Target.canon_target_and_host("cuda", "llvm")
    assert t.host == h == Target("llvm")
    assert Target.canon_multi_target({"cpu": "llvm", "cuda": "cuda"}) == [Target("llvm"), Target("cuda")]
    assert [x.host for x in Target.canon_multi_target_and_host(["cuda", "opencl"], "c")] == [Target("c")] * 2
    with Target("c"):
        assert Target.target_or_current(None) == Target("c") and Target.target_or_current("llvm") == Target("llvm")
    with pytest.raises(ValueError):
        Target.target_or_current(None)


def test_targets_by_name():
    assert tvm.target.mali().keys == ["mali", "opencl", "gpu"] and tvm.target.cuda(arch="sm_90").arch == "sm_90"
    pi = tvm.target.arm_cpu("rasp4b64")
    assert pi.mcpu == "cortex-a72" and pi.keys == ["arm_cpu", "cpu"] and pi.model == "rasp4b64"
    assert tvm.target.micro("stm32f746xx").mcpu == "cortex-m7" and tvm.target.micro("host").device == "cpu"
    assert all(tvm.target.micro(m).device == "microcontroller" for m in ("nrf52840", "mps3_an547"))
