"""What this build of Lathe is."""

from __future__ import annotations

import platform
from typing import Dict

from ._ffi import call, library


def libinfo() -> Dict[str, str]:
    """Facts about the build, as texts under TVM's names: "ON" and "OFF" for what it can do."""
    llvm, version = call("build_info")
    kinds = [row[0] for row in call("target_kinds") if row[2] != "none"]
    absent = (
        "CUDNN",
        "CUBLAS",
        "CUTLASS",
        "ROCM",
        "VULKAN",
        "OPENCL",
        "METAL",
        "HEXAGON",
        "MICRO",
        "RPC",
        "BLAS",
        "MKL",
        "DNNL",
        "ETHOSN",
        "ETHOSU",
    )
    return {
        "TVM_VERSION": library.runtime().lathe_rt_version().decode(),
        "LLVM_VERSION": version if llvm else "NOT-FOUND",
        "USE_LLVM": "ON" if llvm else "OFF",
        # CUDA C is generated and compiled; whether it runs is the device's to say
        "USE_CUDA": "ON" if "cuda" in kinds else "OFF",
        "USE_GRAPH_EXECUTOR": "ON",
        **{f"USE_{name}": "OFF" for name in absent},
    }


def describe() -> None:
    """Prints what a report of a problem should say."""
    info = libinfo()
    print(f"Lathe {info['TVM_VERSION']}, LLVM {info['LLVM_VERSION']}")
    print(f"Python {platform.python_version()} on {platform.platform()}")
