"""Running what was compiled: arrays, modules, devices, functions by name."""

from .._ffi import Object
from . import container, executor, factory, model, object_generic, vm
from .container import ADT, Array, Map, ShapeTuple, String, tuple_object
from .device import Device, cl, cpu, cuda, device, ext_dev, gpu, hexagon, metal, mtl, opencl, rocm, vpi, vulkan, webgpu
from .dtype import DataType
from .module import BenchmarkResult, Function, Module, PackedFunc, enabled, load_module, num_threads, set_num_threads
from .ndarray import NDArray, array, empty, from_dlpack
from .object_generic import ObjectGeneric, const, convert, convert_to_object
from .params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
from .packed import get_global_func, list_global_func_names, register_func, remove_global_func

__all__ = [
    "ADT", "Array", "BenchmarkResult", "DataType", "Device", "Function", "Map", "Module", "NDArray", "Object",
    "ObjectGeneric", "PackedFunc", "ShapeTuple", "String", "array", "cl", "const", "container", "convert",
    "convert_to_object", "cpu", "cuda", "device", "empty", "enabled", "executor", "ext_dev", "factory", "from_dlpack",
    "get_global_func", "gpu", "hexagon", "list_global_func_names", "load_module", "load_param_dict",
    "load_param_dict_from_file", "metal", "model", "mtl", "num_threads", "object_generic", "opencl",
    "register_func", "remove_global_func", "rocm", "save_param_dict", "save_param_dict_to_file", "set_num_threads",
    "tuple_object", "vm", "vpi", "vulkan", "webgpu",
]
