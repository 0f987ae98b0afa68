"""Arrays, under TVM's name for them."""

from .runtime.device import cpu, cuda, device, gpu
from .runtime.ndarray import NDArray, array, empty, from_dlpack

__all__ = ["NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack", "gpu"]
