"""Devices."""

from __future__ import annotations

from typing import Any

from .. import error


class Device:
    """A device that memory lives on: lathe.cpu(0), lathe.cuda(0)."""

    kDLCPU, kDLCUDA = 1, 2
    _names = {1: "cpu", 2: "cuda"}
    _types = {"cpu": 1, "llvm": 1, "c": 1, "cuda": 2, "gpu": 2, "nvptx": 2}

    def __init__(self, device_type: int, device_id: int = 0):
        self.device_type, self.device_id = int(device_type), int(device_id)

    @property
    def exist(self) -> bool:
        """Can it be used from here?"""
        return self.device_type == Device.kDLCPU and self.device_id == 0

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


def check_usable(dev: Device, what: str) -> None:
    """Raises unless memory can be had on the device."""
    if not dev.exist:
        raise error.UnsupportedError(f"{what}: {dev} cannot be used here; there is memory on cpu(0) only")
