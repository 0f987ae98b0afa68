"""Arrays, under TVM's name for them."""

from .runtime.device import cl, cpu, cuda, device, ext_dev, gpu, hexagon, metal, mtl, opencl, rocm, vpi, vulkan, webgpu
from .runtime.ndarray import NDArray, array, empty, from_dlpack, numpyasarray

__all__ = [
    "NDArray", "array", "cl", "cpu", "cuda", "device", "empty", "ext_dev", "from_dlpack", "gpu", "hexagon", "metal",
    "mtl", "numpyasarray", "opencl", "rocm", "vpi", "vulkan", "webgpu",
]
