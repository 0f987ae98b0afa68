"""ONNX models."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ... import error
from ..._ffi import call
from ..._ir.module import IRModule
from ..expr import copy_memory


class ImportReport(NamedTuple):
    """What an import found: operators used and how often, nodes computed away, bytes of weights."""

    operators: Dict[str, int]
    folded: int
    weights_bytes: int


def sizes_of(shape: Optional[Dict[str, Any]]) -> List[Any]:
    """Sizes of inputs as the importers take them: whole numbers; (least, most), a range that an open size is likely to
    be in; anything else stays open."""

    def size(d: Any) -> Any:
        if isinstance(d, (tuple, list)) and len(d) == 2:
            return [int(d[0]), int(d[1])]
        return d if isinstance(d, int) and d >= 0 else None

    return [[name, [size(d) for d in dims]] for name, dims in (shape or {}).items()]


def from_onnx(
    model: Any,
    shape: Optional[Dict[str, Any]] = None,
    dtype: Any = "float32",
    opset: Optional[int] = None,
    freeze_params: bool = True,
    convert_config: Any = None,
    export_node_renamed_model_path: Any = None,
    *,
    external_data_root: Optional[str] = None,
    external: Optional[str] = None,
) -> Tuple[IRModule, Dict[str, Any]]:
    """A module and its parameters from a model (an onnx.ModelProto, its bytes, or a path).

    shape binds the sizes of inputs by name: {"input": (1, 3, 224, 224)}; -1, None and relay.Any()
    stay symbolic, and so does a range, (1, 8): kernels are chosen for its middle and serve every size.
    Weights are constants of the module unless freeze_params is False: then they are parameters and come
    in the dictionary.  Types are the model's: dtype and convert_config, which TVM needs, change nothing.

    external="onnxruntime" leaves nodes that Lathe has no converter for to ONNX Runtime, which then is needed when the
    model runs."""
    if export_node_renamed_model_path is not None:
        raise error.UnsupportedError(
            "from_onnx: export_node_renamed_model_path is not supported; a node without a name goes by its first output"
        )
    if external is not None:
        return _with_external(model, shape, opset, freeze_params, external_data_root, external), {}
    mod, params, _ = import_onnx(model, shape, opset, not freeze_params, external_data_root)
    return mod, params


def _with_external(
    model: Any, shape: Any, opset: Optional[int], freeze_params: bool, root: Optional[str], external: str
) -> IRModule:
    from .onnx_external import import_external

    if external != "onnxruntime":
        raise error.ArgumentError(f"from_onnx: external is \"onnxruntime\", not {external!r}")
    if not freeze_params or root is not None:
        raise error.UnsupportedError(
            "from_onnx: with external, weights are constants and lie beside the model; leave freeze_params and "
            "external_data_root alone"
        )
    return import_external(model, shape, lambda data: import_onnx(data, shape, opset)[0])


def import_onnx(
    model: Any,
    shape: Optional[Dict[str, Any]] = None,
    opset: Optional[int] = None,
    keep_params: bool = False,
    external_data_root: Optional[str] = None,
) -> Tuple[IRModule, Dict[str, Any], ImportReport]:
    """The same with the import report."""
    path: Optional[str] = None
    data: Optional[bytes] = None
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
    elif isinstance(model, (bytes, bytearray)):
        data = bytes(model)
    elif hasattr(model, "SerializeToString"):
        data = model.SerializeToString()
    else:
        raise error.TypeError(f"from_onnx takes an onnx model, its bytes or a path, not a {type(model).__name__}")
    shapes = sizes_of(shape)
    buffer = ctypes.create_string_buffer(data, len(data)) if data is not None else None
    address = ctypes.addressof(buffer) if buffer is not None else None
    size = len(data) if data is not None else None
    mod, ops, folded, weights, values = call(
        "onnx_import", address, size, path, shapes, external_data_root, opset, keep_params
    )
    params = {name: copy_memory(at, n, dt, dims) for name, at, n, dt, dims in values}
    return mod, params, ImportReport(dict(map(tuple, ops)), folded, weights)
