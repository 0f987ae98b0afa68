"""Arrays, under TVM's name for them."""

from .runtime.device import cl, cpu, cuda, device, ext_dev, gpu, hexagon, metal, mtl, opencl, rocm, vpi, vulkan, webgpu
from .runtime.ndarray import NDArray, array, empty, from_dlpack, numpyasarray

__all__ = [n for n in globals() if not n.startswith("_")]
