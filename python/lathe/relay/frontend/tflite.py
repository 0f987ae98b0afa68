"""TFLite models."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, Optional, Tuple

from ... import error
from ..._ffi import call
from ..._ir.module import IRModule
from ..expr import copy_memory
from .onnx import ImportReport, sizes_of


def _model_bytes(model: Any) -> bytes:
    """The flatbuffer of bytes, of a buffer, or of the object that tflite.Model.GetRootAsModel gives."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    table = getattr(model, "_tab", None)
    if table is not None and hasattr(table, "Bytes"):
        return bytes(table.Bytes)
    raise error.TypeError(
        f"from_tflite takes the bytes of a model, a tflite.Model or a path, not a {type(model).__name__}"
    )


def import_tflite(
    model: Any, shape: Optional[Dict[str, Any]] = None, keep_params: bool = False
) -> Tuple[IRModule, Dict[str, Any], ImportReport]:
    """A module, its parameters and the import report."""
    path: Optional[str] = None
    data: Optional[bytes] = None
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
    else:
        data = _model_bytes(model)
    shapes = sizes_of(shape)
    buffer = ctypes.create_string_buffer(data, len(data)) if data is not None else None
    address = ctypes.addressof(buffer) if buffer is not None else None
    size = len(data) if data is not None else None
    mod, ops, folded, weights, values = call("tflite_import", address, size, path, shapes, keep_params)
    params = {name: copy_memory(at, n, dt, dims) for name, at, n, dt, dims in values}
    return mod, params, ImportReport(dict(map(tuple, ops)), folded, weights)


def from_tflite(
    model: Any,
    shape_dict: Optional[Dict[str, Any]] = None,
    dtype_dict: Optional[Dict[str, Any]] = None,
    op_converter: Any = None,
) -> Tuple[IRModule, Dict[str, Any]]:
    """A module and its parameters from a model: its bytes, a tflite.Model, or a path.

    shape_dict binds the sizes of inputs that the model leaves open, by name: {"input": (4, 224, 224, 3)}; without it
    they are as the file has them.  dtype_dict, which TVM needs, must say what the model says.  Weights are constants of
    the module."""
    if op_converter is not None:
        raise error.UnsupportedError("from_tflite: op_converter is not supported; 'lathe ops --tflite' lists what is")
    mod, params, _ = import_tflite(model, shape_dict)
    if dtype_dict:
        found = {p.name_hint: p.type_annotation.dtype for p in mod["main"].params}
        for name, dtype in dtype_dict.items():
            if name not in found:
                raise error.ArgumentError(
                    f"a dtype is given for '{name}', which is no input of the model; there are {', '.join(found)}"
                )
            if str(dtype) != str(found[name]):
                raise error.ArgumentError(f"the input '{name}' is {found[name]} in the model, not {dtype}")
    return mod, params
