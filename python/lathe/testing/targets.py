"""Targets that tests run on, and marks that skip a test where something is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import struct
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..contrib import nvcc
from ..runtime.device import Device, device
from ..runtime.module import enabled
from ..target import Target
from .fixtures import _pytest

#: Targets that TVM's own tests run on; enabled_targets() are those among them that run here.
DEFAULT_TEST_TARGETS = ["llvm", "c", "cuda", "nvptx", "vulkan", "opencl", "metal", "rocm", "hexagon"]
Answer = Optional[str]  # None: it is there; else why not


def _kind(target: Any) -> str:
    return (
        str(target.kind) if isinstance(target, Target) else target["kind"] if isinstance(target, dict) else str(target)
    ).split()[0]


def why_not(target: Any) -> Answer:
    """Why a target cannot be compiled for and run here; None if it can."""
    kind = _kind(target)
    if not enabled(kind):
        return f"code for {kind} cannot be made here"
    if not device(kind).exist:
        return f"there is no {kind} device here"
    return None


def device_enabled(target: Any) -> bool:
    """Does code for this target run here?"""
    return why_not(target) is None


def enabled_targets() -> List[Tuple[str, Device]]:
    """Targets that run here, each with its device; of those in TVM_TEST_TARGETS (by semicolons) if that is set."""
    given = [t.strip() for t in os.environ.get("TVM_TEST_TARGETS", "").split(";") if t.strip()]
    found = [
        (t, device(t.split()[0]))
        for t in given or DEFAULT_TEST_TARGETS[:1] + DEFAULT_TEST_TARGETS[2:]
        if device_enabled(t)
    ]
    if not found and not given:
        found = [("c", device("c"))]  # without LLVM
    if not found:
        raise RuntimeError(f"none of the targets in TVM_TEST_TARGETS runs here: {'; '.join(given)}")
    return found


def target_parameter(target: Any) -> Any:
    """A target as a parameter of a test, skipped where it does not run."""
    pytest, reason = _pytest(), why_not(target)
    return pytest.param(target, marks=[pytest.mark.skip(reason=reason)] if reason else [], id=str(target))


def parametrize_targets(*args: Any) -> Any:
    """The test runs on each of these targets (without any: on those of enabled_targets); it takes `target`, and
    `dev`."""
    if len(args) == 1 and callable(args[0]):
        return parametrize_targets()(args[0])
    targets = list(args) or [t for t, _ in enabled_targets()]
    return _pytest().mark.parametrize("target", [target_parameter(t) for t in targets], scope="session")


def exclude_targets(*args: str) -> Any:
    """The test does not run on these targets."""
    return _pytest().mark.lathe_exclude_targets(*args)


def known_failing_targets(*args: str) -> Any:
    """The test is expected to fail on these targets."""
    return _pytest().mark.lathe_failing_targets(*args)


# ---- what a test needs


class Feature:
    """Something that a test needs, as a decorator: without it the test is skipped, with the reason."""

    def __init__(self, name: str, check: Callable[[str], Answer]):
        self.name, self._check = name, check

    def reason(self, support_required: str = "compile-and-run") -> Answer:
        """Why it is not here, None if it is; with "compile-only" code need not run."""
        if support_required not in ("compile-and-run", "compile-only", "optional"):
            raise ValueError(f"support_required is compile-and-run, compile-only or optional, not '{support_required}'")
        return None if support_required == "optional" else self._check(support_required)

    def marks(self, support_required: str = "compile-and-run") -> List[Any]:
        """pytest's marks for it."""
        reason = self.reason(support_required)
        return [_pytest().mark.skipif(reason is not None, reason=f"needs {self.name}: {reason}")]

    def __call__(self, func: Any = None, *, support_required: str = "compile-and-run") -> Any:
        if func is None:
            return lambda f: self(f, support_required=support_required)
        for mark in self.marks(support_required):
            func = mark(func)
        return func


def _target(kind: str) -> Callable[[str], Answer]:
    def check(support: str) -> Answer:
        if support == "compile-only":
            return None if enabled(kind) else f"code for {kind} cannot be made here"
        return why_not(kind)

    return check


def _absent(what: str) -> Callable[[str], Answer]:
    return lambda _support: f"Lathe has no {what}"


def _machine(*names: str) -> Callable[[str], Answer]:
    return lambda support: (
        None if support == "compile-only" or platform.machine() in names else f"this machine is {platform.machine()}"
    )


def _cpu_feature(feature: str) -> Callable[[str], Answer]:
    def check(support: str) -> Answer:
        if support == "compile-only":
            return None if enabled("llvm") else "there is no LLVM"
        return (
            None
            if enabled("llvm") and feature in Target("llvm -mcpu=native").features
            else f"this CPU has no {feature}"
        )

    return check


def _program(*names: str) -> Callable[[str], Answer]:
    return lambda _support: None if any(map(shutil.which, names)) else f"{' or '.join(names)} is not installed"


def _any_gpu(support: str) -> Answer:
    reasons = [_target(k)(support) for k in ("cuda", "rocm", "vulkan", "opencl", "metal")]
    return None if None in reasons else "there is no GPU that code runs on here"


_ABSENT = {
    "adreno_opencl": "OpenCL",
    "cudagraph": "CUDA graphs",
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "cutlass": "CUTLASS",
    "ethosn": "Ethos-N",
    "ethosu": "Ethos-U",
    "micro": "microTVM",
    "rpc": "RPC",
    "nnapi": "NNAPI",
    "vitis_ai": "Vitis AI",
    "openclml": "OpenCLML",
    "libtorch": "libtorch",
    "cmsisnn": "CMSIS-NN",
    "corstone300": "Corstone 300",
    "arm_compute_library": "Arm Compute Library",
    "dnnl": "DNNL",
    "mkl": "MKL",
    "rocblas": "rocBLAS",
    "clml": "CLML",
}

FEATURES: Dict[str, Feature] = {
    **{
        kind: Feature(kind, _target(kind))
        for kind in ("llvm", "cuda", "nvptx", "rocm", "vulkan", "opencl", "metal", "hexagon")
    },
    **{name: Feature(what, _absent(what)) for name, what in _ABSENT.items()},
    "gpu": Feature("a GPU", _any_gpu),
    "tensorcore": Feature("tensor cores", _target("cuda")),
    "matrixcore": Feature("matrix cores", _target("rocm")),
    "x86": Feature("an x86 CPU", _machine("x86_64", "AMD64")),
    "aarch64": Feature("an AArch64 CPU", _machine("aarch64", "arm64")),
    "aarch64_sve": Feature("SVE", _cpu_feature("sve")),
    "aarch64_sme": Feature("SME", _cpu_feature("sme")),
    "arm_dot": Feature("Arm's dot product", _cpu_feature("dotprod")),
    "arm_fp16": Feature("Arm's float16 arithmetic", _cpu_feature("fullfp16")),
    "x86_vnni": Feature("AVX512-VNNI", _cpu_feature("avx512vnni")),
    "x86_avx512": Feature("AVX-512", _cpu_feature("avx512f")),
    "x86_amx": Feature("AMX", _cpu_feature("amx-int8")),
    "nvcc": Feature("nvcc", _program("nvcc")),
    "ccache": Feature("ccache", _program("ccache")),
}


def requires_package(*packages: str) -> Any:
    """The test needs these Python packages."""
    absent = [p for p in packages if importlib.util.find_spec(p) is None]
    return _pytest().mark.skipif(bool(absent), reason=f"needs the Python package {' and '.join(absent)}")


def requires_nvcc_version(major: int, minor: int = 0, release: int = 0) -> Any:
    """The test needs nvcc of this version or a later one."""
    reason = FEATURES["nvcc"].reason()
    if reason is None and nvcc.get_cuda_version() < (major, minor):
        reason = f"it is {'.'.join(map(str, nvcc.get_cuda_version()))}"
    return _pytest().mark.skipif(reason is not None, reason=f"needs nvcc {major}.{minor}: {reason}")


def requires_cuda_compute_version(major: int, minor: int = 0) -> Any:
    """The test needs a CUDA device of this compute capability or a later one."""
    reason = FEATURES["cuda"].reason()
    if reason is None:
        found = nvcc.parse_compute_version(nvcc.get_target_compute_version())
        reason = None if found >= (major, minor) else f"it is {found[0]}.{found[1]}"
    return _pytest().mark.skipif(reason is not None, reason=f"needs compute capability {major}.{minor}: {reason}")


def skip_if_32bit(reason: Any = "") -> Any:
    """The test does not run where pointers have 32 bits; used with a reason or without."""
    mark = _pytest().mark.skipif(struct.calcsize("P") == 4, reason="pointers have 32 bits here")
    return mark(reason) if callable(reason) else mark


def skip_if_wheel_test(func: Any) -> Any:
    """TVM's mark for tests that its wheels do not pass; they run here."""
    return func


def uses_gpu(func: Any) -> Any:
    """Marks a test that uses a GPU where there is one; it runs without as well."""
    return func
