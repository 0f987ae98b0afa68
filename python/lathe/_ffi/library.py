"""Finding and loading the compiler (liblathe) and the runtime (liblathe_rt), and what they declare."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from ctypes import POINTER, Structure, Union, c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import List

PACKAGE = Path(__file__).resolve().parent.parent


def search_path() -> List[Path]:
    """Folders that may hold the libraries, in the order they are tried."""
    given = [Path(p) for p in os.environ.get("LATHE_LIBRARY_PATH", "").split(os.pathsep) if p]
    return given + [PACKAGE / "lib", PACKAGE.parent.parent / "build"]


def _load(name: str) -> ctypes.CDLL:
    tried = []
    for folder in search_path():
        path = folder / name
        if path.exists():
            try:
                return ctypes.CDLL(str(path.absolute()), mode=ctypes.RTLD_LOCAL)
            except OSError as e:
                raise ImportError(f"{path} does not load: {e}") from None
        tried.append(str(folder))
    raise ImportError(
        f"{name} was not found in {', '.join(tried)}; run `make build` in the source tree, "
        "install the wheel, or set LATHE_LIBRARY_PATH to the folder that holds it"
    )


# ---- include/lathe.h


class ValueUnion(Union):
    _fields_ = [("i", c_int64), ("f", c_double), ("s", c_void_p), ("p", c_void_p)]


class Value(Structure):
    """LatheValue."""

    _fields_ = [("tag", c_int32), ("kind", c_int32), ("u", ValueUnion), ("n", c_int64)]


NONE, BOOL, INT, FLOAT, STR, OBJECT, LIST = range(7)

#: LatheKind, by number.
KINDS = (
    "expr var itervar buffer reducer tensor teop stmt primfunc module schedule teschedule testage "
    "tensorintrin target built world block loop intrv node type passcontext compiled"
).split()

PollFn = ctypes.CFUNCTYPE(c_int32, c_void_p)


@functools.lru_cache(maxsize=None)
def compiler() -> ctypes.CDLL:
    """The compiler, with its functions declared."""
    runtime()
    lib = _load("liblathe.so.0")
    lib.lathe_context_new.restype = c_void_p
    lib.lathe_context_free.argtypes = [c_void_p]
    lib.lathe_call.argtypes = [c_void_p, c_char_p, c_int32, c_void_p, c_void_p]
    lib.lathe_call.restype = c_int32
    lib.lathe_object_retain.argtypes = [c_int32, c_void_p]
    lib.lathe_object_release.argtypes = [c_int32, c_void_p]
    lib.lathe_object_id.argtypes = [c_int32, c_void_p]
    lib.lathe_object_id.restype = c_uint64
    lib.lathe_object_count.argtypes = [c_void_p]
    lib.lathe_object_count.restype = c_int64
    lib.lathe_error_name.argtypes = [c_int32]
    lib.lathe_error_name.restype = c_char_p
    lib.lathe_error_message.argtypes = [c_void_p]
    lib.lathe_error_message.restype = c_char_p
    lib.lathe_error_location.argtypes = [c_void_p, POINTER(c_char_p), POINTER(c_int32), POINTER(c_int32)]
    lib.lathe_error_location.restype = c_int32
    lib.lathe_functions.argtypes = [c_int32, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_char_p)]
    lib.lathe_functions.restype = c_int32
    lib.lathe_set_poll.argtypes = [c_void_p, PollFn, c_void_p]
    lib.lathe_fail_allocation.argtypes = [c_void_p, c_int64]
    lib.lathe_fail_allocation.restype = c_int64
    lib.lathe_version.restype = c_char_p
    return lib


# ---- include/lathe_rt.h


class RtError(Structure):
    """LatheRtError."""

    _fields_ = [("text", c_char * 512)]


class RtDevice(Structure):
    """LatheRtDevice, DLDevice."""

    _fields_ = [("type", c_int32), ("id", c_int32)]


class RtDType(Structure):
    """LatheRtDType, DLDataType."""

    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


MAX_RANK = 16  # LATHE_RT_MAX_RANK of lathe_rt.h


class RtTensor(Structure):
    """LatheRtTensor, DLTensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device", RtDevice),
        ("ndim", c_int32),
        ("dtype", RtDType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class RtSlot(Union):
    """LatheRtSlot."""

    _fields_ = [("p", c_void_p), ("i", c_int64), ("f", c_double)]


class RtArg(Structure):
    """LatheRtArg."""

    _fields_ = [("tensor", POINTER(RtTensor)), ("scalar", RtSlot)]


class RtArgInfo(Structure):
    """LatheRtArgInfo."""

    _fields_ = [("name", c_char_p), ("dtype", RtDType), ("ndim", c_int32), ("flags", c_int32)]


class RtSizeInfo(Structure):
    """LatheRtSizeInfo."""

    _fields_ = [("name", c_char_p), ("arg", c_int32), ("dim", c_int32)]


class RtFuncInfo(Structure):
    """LatheRtFuncInfo."""

    _fields_ = [
        ("name", c_char_p),
        ("call", c_void_p),
        ("shape", c_void_p),
        ("nargs", c_int32),
        ("nsizes", c_int32),
        ("args", POINTER(RtArgInfo)),
        ("sizes", POINTER(RtSizeInfo)),
        ("workspace", c_int64),
        ("slice", c_int64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class RtModuleInfo(Structure):
    """LatheRtModuleInfo."""

    _fields_ = [
        ("magic", c_char * 8),
        ("abi", c_uint32),
        ("nfuncs", c_int32),
        ("arch", c_char_p),
        ("features", c_char_p),
        ("funcs", POINTER(RtFuncInfo)),
        ("align", c_uint32),
        ("reserved", c_uint32),
    ]


class PackedUnion(Union):
    _fields_ = [("i", c_int64), ("f", c_double), ("s", c_char_p), ("p", c_void_p), ("t", POINTER(RtTensor))]


class RtPackedArg(Structure):
    """LatheRtPackedArg."""

    _fields_ = [("tag", c_int32), ("u", PackedUnion)]


PACKED_INT, PACKED_FLOAT, PACKED_STR, PACKED_HANDLE, PACKED_TENSOR, PACKED_OBJECT, PACKED_NONE = range(7)
PackedFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(RtPackedArg), POINTER(RtPackedArg))
DropFn = ctypes.CFUNCTYPE(None, c_void_p)


class RtPort(Structure):
    """LatheRtPort."""

    _fields_ = [
        ("name", c_char_p),
        ("dtype", RtDType),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("type", c_char_p),
        ("kind", c_int32),
        ("device", c_int32 * 2),
    ]


class RtEntry(Structure):
    """LatheRtEntry."""

    _fields_ = [
        ("name", c_char_p),
        ("ninputs", c_int32),
        ("noutputs", c_int32),
        ("inputs", POINTER(RtPort)),
        ("outputs", POINTER(RtPort)),
        ("storage_bytes", c_uint64),
        ("storage_bound", c_uint64),
        ("is_dynamic", c_int32),
    ]


class RtLoad(Structure):
    """LatheRtLoad."""

    _fields_ = [("size", c_uint32), ("cache", c_char_p), ("progress", c_void_p), ("user", c_void_p), ("look_only", c_int32)]


class RtModelInfo(Structure):
    """LatheRtModelInfo."""

    _fields_ = [
        ("size", c_uint32),
        ("num_nodes", c_int32),
        ("target", c_char_p),
        ("features", c_char_p),
        ("weights_bytes", c_uint64),
        ("storage_bytes", c_uint64),
        ("storage_bound", c_uint64),
        ("is_dynamic", c_int32),
        ("from_cache", c_int32),
        ("prepared_bytes", c_uint64),
        ("cache_note", c_char_p),
        ("num_strings", c_int32),
    ]


class RtNode(Structure):
    """LatheRtNode."""

    _fields_ = [("name", c_char_p), ("source", c_char_p), ("impl", c_char_p), ("flops", c_double), ("flops_done", c_double), ("bytes", c_double)]


_Tensors = POINTER(POINTER(RtTensor))
NodeFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, c_double, c_int32, _Tensors, c_int32, _Tensors)


def _declare_models(lib: ctypes.CDLL) -> None:
    err = POINTER(RtError)
    lib.lathe_rt_model_load.argtypes = [c_char_p, POINTER(c_void_p), err]
    lib.lathe_rt_model_of.argtypes = [c_void_p, POINTER(c_void_p), err]
    lib.lathe_rt_model_retain.argtypes = [c_void_p]
    lib.lathe_rt_model_retain.restype = c_void_p
    lib.lathe_rt_model_free.argtypes = [c_void_p]
    lib.lathe_rt_model_load_with.argtypes = [c_char_p, POINTER(RtLoad), POINTER(c_void_p), err]
    lib.lathe_rt_model_entries.argtypes = [c_void_p]
    lib.lathe_rt_model_entry.argtypes = [c_void_p, c_int32]
    lib.lathe_rt_model_entry.restype = POINTER(RtEntry)
    lib.lathe_rt_model_info.argtypes = [c_void_p, POINTER(RtModelInfo)]
    lib.lathe_rt_model_info.restype = None
    lib.lathe_rt_object_new.argtypes = [c_char_p, c_void_p, c_void_p, POINTER(c_void_p), err]
    lib.lathe_rt_object_retain.argtypes = [c_void_p]
    lib.lathe_rt_object_retain.restype = c_void_p
    lib.lathe_rt_object_free.argtypes = [c_void_p]
    lib.lathe_rt_object_data.argtypes = [c_void_p, c_char_p]
    lib.lathe_rt_object_data.restype = c_void_p
    lib.lathe_rt_object_kind.argtypes = [c_void_p]
    lib.lathe_rt_object_kind.restype = c_char_p
    lib.lathe_rt_executor_select.argtypes = [c_void_p, c_int32, err]
    lib.lathe_rt_set_input_object.argtypes = [c_void_p, c_int32, c_void_p, err]
    lib.lathe_rt_get_output_object.argtypes = [c_void_p, c_int32, POINTER(c_void_p), err]
    lib.lathe_rt_model_node.argtypes = [c_void_p, c_int32]
    lib.lathe_rt_model_node.restype = POINTER(RtNode)
    lib.lathe_rt_executor_new.argtypes = [c_void_p, POINTER(c_void_p), err]
    lib.lathe_rt_executor_free.argtypes = [c_void_p]
    for name in ("lathe_rt_set_input", "lathe_rt_set_input_view", "lathe_rt_set_output_view"):
        getattr(lib, name).argtypes = [c_void_p, c_int32, POINTER(RtTensor), err]
    for name in ("lathe_rt_get_input", "lathe_rt_get_output"):
        getattr(lib, name).argtypes = [c_void_p, c_int32, POINTER(POINTER(RtTensor)), err]
    lib.lathe_rt_get_output_items.argtypes = [c_void_p, c_int32, POINTER(c_int32), POINTER(_Tensors), err]
    lib.lathe_rt_set_input_items.argtypes = [c_void_p, c_int32, c_int32, _Tensors, err]
    lib.lathe_rt_string_put.argtypes = [c_void_p, c_char_p, ctypes.c_size_t, POINTER(c_uint64), err]
    lib.lathe_rt_string_get.argtypes = [c_void_p, c_uint64, POINTER(c_void_p), POINTER(ctypes.c_size_t), err]
    lib.lathe_rt_run.argtypes = [c_void_p, err]
    lib.lathe_rt_executor_reset.argtypes = [c_void_p, err]
    lib.lathe_rt_executor_set_threads.argtypes = [c_void_p, c_int32, err]
    lib.lathe_rt_executor_memory.argtypes = [c_void_p, POINTER(c_uint64), POINTER(c_uint64)]
    lib.lathe_rt_executor_memory.restype = None
    lib.lathe_rt_executor_watch.argtypes = [c_void_p, c_void_p, c_void_p]
    lib.lathe_rt_executor_watch.restype = None


def _name_onnxruntime() -> None:
    """Tells the plugin for ONNX Runtime of the library in Python's package of it, where nobody named another."""
    try:
        found = importlib.util.find_spec("onnxruntime")
    except (ImportError, ValueError):
        found = None
    if "LATHE_ONNXRUNTIME_LIBRARY" in os.environ or found is None:
        return
    for folder in found.submodule_search_locations or ():
        for path in sorted(Path(folder, "capi").glob("libonnxruntime.so*"), reverse=True):
            os.environ["LATHE_ONNXRUNTIME_LIBRARY"] = str(path.resolve())
            return


@functools.lru_cache(maxsize=None)
def runtime() -> ctypes.CDLL:
    """The runtime, with its functions declared."""
    _name_onnxruntime()
    lib = _load("liblathe_rt.so.2")
    err = POINTER(RtError)
    lib.lathe_rt_module_load.argtypes = [c_char_p, POINTER(c_void_p), err]
    lib.lathe_rt_module_free.argtypes = [c_void_p]
    lib.lathe_rt_module_info.argtypes = [c_void_p]
    lib.lathe_rt_module_info.restype = POINTER(RtModuleInfo)
    lib.lathe_rt_module_func.argtypes = [c_void_p, c_char_p, POINTER(c_void_p), err]
    lib.lathe_rt_func_info.argtypes = [c_void_p]
    lib.lathe_rt_func_info.restype = POINTER(RtFuncInfo)
    lib.lathe_rt_func_call.argtypes = [c_void_p, c_int32, c_void_p, err]
    lib.lathe_rt_func_time.argtypes = [c_void_p, c_int32, c_void_p, c_int32, c_int32, c_double, POINTER(c_double), err]
    lib.lathe_rt_register.argtypes = [c_char_p, c_void_p, c_void_p, err]
    lib.lathe_rt_num_threads.restype = c_int32
    lib.lathe_rt_set_num_threads.argtypes = [c_int32, err]
    lib.lathe_rt_version.restype = c_char_p
    lib.lathe_rt_cpu_features.restype = c_char_p
    lib.lathe_rt_tensor_copy.argtypes = [POINTER(RtTensor), POINTER(RtTensor), err]
    _declare_models(lib)
    return lib


@functools.lru_cache(maxsize=None)
def undeclared() -> ctypes.CDLL:
    """The runtime once more, without declarations: what is passed must be of the right kind already (an object of
    ctypes', bytes for a text, or a number for an int32_t), which halves the time that a call takes."""
    return ctypes.CDLL(runtime()._name, mode=ctypes.RTLD_LOCAL)


assert ctypes.sizeof(Value) == 24 and ctypes.sizeof(c_size_t) == 8
