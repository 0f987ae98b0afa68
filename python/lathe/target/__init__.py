"""Targets: the machine that code is made for."""

from . import tag, virtual_device
from .tag import list_tags, register_tag
from .target import (
    Target,
    TargetKind,
    adreno,
    arm_cpu,
    bifrost,
    create,
    cuda,
    intel_graphics,
    llvm,
    mali,
    metal,
    micro,
    opencl,
    rasp,
    resolve,
    rocm,
    vulkan,
)
from .virtual_device import CompilationConfig, VirtualDevice, make_compilation_config

__all__ = [
    "CompilationConfig", "Target", "TargetKind", "VirtualDevice", "adreno", "arm_cpu", "bifrost", "create", "cuda",
    "intel_graphics", "list_tags", "llvm", "make_compilation_config", "mali", "metal", "micro", "opencl", "rasp",
    "register_tag", "resolve", "rocm", "tag", "virtual_device", "vulkan",
]  # fmt: skip
