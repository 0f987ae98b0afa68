"""Devices."""

from __future__ import annotations

import platform
from typing import Any, Callable, Optional

from .. import error


_GPU_PROPERTIES = (
    "api_version", "compute_version", "driver_version", "l2_cache_size_bytes", "max_clock_rate",
    "max_shared_memory_per_block", "max_thread_dimensions", "max_threads_per_block", "multi_processor_count",
    "texture_spatial_limit", "warp_size",
)


class Device:
    """A device that memory lives on: lathe.cpu(0), lathe.cuda(0)."""

    kDLCPU, kDLCUDA, kDLCUDAHost, kDLOpenCL, kDLVulkan, kDLMetal, kDLVPI = 1, 2, 3, 4, 7, 8, 9
    kDLROCM, kDLExtDev, kDLWebGPU, kDLHexagon = 10, 12, 15, 16
    _names = {
        1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi",
        10: "rocm", 12: "ext_dev", 15: "webgpu", 16: "hexagon",
    }
    _types = {
        **{name: number for number, name in _names.items()},
        **{"llvm": 1, "c": 1, "stackvm": 1, "gpu": 2, "nvptx": 2, "cl": 4, "mtl": 8},
    }

    def __init__(self, device_type: int, device_id: int = 0):
        self.device_type, self.device_id = int(device_type), int(device_id)

    @property
    def exist(self) -> bool:
        """Can it be used from here?"""
        return self.device_type == Device.kDLCPU and self.device_id == 0

    @property
    def device_name(self) -> Optional[str]:
        """What the machine calls it; None for one that does not exist."""
        return (platform.processor() or platform.machine()) if self.exist else None

    def __getattr__(self, name: str) -> None:
        """What only other devices have, such as max_threads_per_block and warp_size, is None, as TVM says of a CPU."""
        if name not in _GPU_PROPERTIES:
            raise AttributeError(f"a device has no '{name}'")

    def sync(self, stream: Any = None) -> None:
        """Waits until its work is done; on the CPU it always is."""

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and (other.device_type, other.device_id) == (self.device_type, self.device_id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self._names.get(self.device_type, self.device_type)}({self.device_id})"

    __str__ = __repr__


def device(dev_type: Any, dev_id: int = 0) -> Device:
    """A device by name ("cpu", "cuda"), by a target's string, or by number."""
    if isinstance(dev_type, Device):
        return dev_type
    if isinstance(dev_type, str):
        words = dev_type.split()
        if not words or words[0] not in Device._types:
            raise error.ArgumentError(f"there is no device '{dev_type}'; known are {', '.join(sorted(Device._types))}")
        dev_type = Device._types[words[0]]
    return Device(dev_type, dev_id)


def cpu(dev_id: int = 0) -> Device:
    """The CPU."""
    return Device(Device.kDLCPU, dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A CUDA device.  Code is generated for it; it cannot run here yet."""
    return Device(Device.kDLCUDA, dev_id)


gpu = cuda


def _other(name: str) -> Callable[..., Device]:
    number = Device._types[name]

    def make(dev_id: int = 0) -> Device:
        return Device(number, dev_id)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A device of {name}: it exists as an object only, `.exist` is False and memory on it is refused."
    return make


opencl, vulkan, metal, vpi, rocm = _other("opencl"), _other("vulkan"), _other("metal"), _other("vpi"), _other("rocm")
ext_dev, webgpu, hexagon = _other("ext_dev"), _other("webgpu"), _other("hexagon")
cl, mtl = opencl, metal


def check_usable(dev: Device, what: str) -> None:
    """Raises unless memory can be had on the device."""
    if not dev.exist:
        raise error.UnsupportedError(f"{what}: {dev} cannot be used here; there is memory on cpu(0) only")
