"""from_paddle: saved models and layers."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from .... import error
from ...._ir.module import IRModule
from ....runtime.ndarray import NDArray, array
from ...expr import Function, RelayExpr, var
from ...expr import Tuple as TupleExpr
from ...ty import TensorType
from ..values import expr
from . import graph, legacy, params, pir
from .program import Program, Tensor


def from_paddle(
    program_or_layer: Any,
    shape_dict: Optional[Dict[str, Any]] = None,
    scope: Any = None,
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """A module and its parameters from a model of Paddle's.

    program_or_layer is the path of what paddle.jit.save or paddle.static.save_inference_model wrote (with or without
    its ending: net.json or net.pdmodel, beside net.pdiparams), which needs no Paddle, or a layer that paddle.jit.load
    gave or paddle.jit.save can save.  shape_dict says the sizes of inputs that the model leaves open: {"x": (1, 3, 224,
    224)}.  scope, in which TVM looks up parameters, is not used: they are those of the layer or the file."""
    if scope is not None:
        raise error.UnsupportedError("from_paddle: scope is not supported; save the program, and give the path")
    shapes = dict(shape_dict or {})
    if isinstance(program_or_layer, (str, os.PathLike)):
        return _convert(*_files(pathlib.Path(program_or_layer)), shapes)
    if not hasattr(program_or_layer, "forward"):
        raise error.ArgumentError(
            "from_paddle takes the path of a saved model or a layer, not a "
            f"{type(program_or_layer).__name__}; paddle.static.save_inference_model saves a program"
        )
    return _layer(program_or_layer, shapes)


def _layer(layer: Any, shapes: Dict[str, Any]) -> Tuple[IRModule, Dict[str, NDArray]]:
    import paddle

    loaded = isinstance(layer, paddle.jit.TranslatedLayer)
    specs = None if loaded else [paddle.static.InputSpec(list(s), "float32", name) for name, s in shapes.items()]
    if not loaded and not shapes:
        raise error.ArgumentError("from_paddle: a layer needs shape_dict: {name: sizes} for each input in order")
    training = layer.training
    layer.eval()
    try:
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "net")
            paddle.jit.save(layer, prefix, **({} if loaded else {"input_spec": specs}))
            return _convert(*_files(pathlib.Path(prefix)), shapes)
    finally:
        if training:
            layer.train()


def _bytes(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise error.IOError(f"from_paddle: the model cannot be read: {e}") from None


def _files(path: pathlib.Path) -> Tuple[Program, Dict[str, np.ndarray]]:
    """The program and its parameters."""
    plain = str(path)
    for ending in (".json", ".pdmodel", ".pdiparams"):
        plain = plain[: -len(ending)] if plain.endswith(ending) else plain
    newer, older = pathlib.Path(plain + ".json"), pathlib.Path(plain + ".pdmodel")
    wanted = path if path in (newer, older) else newer if newer.exists() or not older.exists() else older
    program = (legacy if wanted == older else pir).read(_bytes(wanted))
    if not program.params:
        return program, {}
    return program, params.read(_bytes(pathlib.Path(plain + ".pdiparams")), program.params)


def _input(t: Tensor, shapes: Dict[str, Any]) -> RelayExpr:
    dims = list(shapes.pop(t.name, t.shape))
    if any(not isinstance(d, (int, np.integer)) or d < 0 for d in dims):
        raise error.ArgumentError(
            f"from_paddle: the sizes of input '{t.name}' are open ({dims}); say them: "
            f"shape_dict={{'{t.name}': (1, …)}}"
        )
    if len(dims) != len(t.shape) or any(b not in (-1, a) for a, b in zip(dims, t.shape)):
        raise error.ArgumentError(f"from_paddle: input '{t.name}' is {t.shape} in the model; {dims} does not fit")
    return var(t.name, TensorType([int(d) for d in dims], t.dtype))


def _convert(
    program: Program, arrays: Dict[str, np.ndarray], shapes: Dict[str, Any]
) -> Tuple[IRModule, Dict[str, NDArray]]:
    missing = graph.absent(program.ops)
    if missing:
        listed = ", ".join(f"{n} ({k})" if k > 1 else n for n, k in sorted(missing.items()))
        raise error.UnsupportedError(f"from_paddle: operators that are not supported: {listed}")
    values: graph.Values = {}
    inputs: List[RelayExpr] = []
    for t in program.inputs:
        values[t.key] = _input(t, shapes)
        inputs.append(values[t.key])
    if shapes:
        raise error.ArgumentError(f"from_paddle: there is no input '{next(iter(shapes))}'")
    weights: Dict[str, NDArray] = {}
    for t in program.params:
        if t.dtype in ("float32", "float64", "float16"):
            values[t.key] = var(t.name, TensorType(t.shape, t.dtype))
            inputs.append(values[t.key])
            weights[t.name] = array(arrays[t.name])
        elif t.dtype == "bfloat16":
            raise error.UnsupportedError(f"from_paddle: parameter '{t.name}' is of bfloat16")
        else:  # sizes and places may be made of it
            values[t.key] = arrays[t.name]
    graph.run(program.ops, values)
    outs = [expr(graph.operand(values, key)) for key in program.outputs]
    if not outs:
        raise error.ArgumentError("from_paddle: the model gives nothing")
    return IRModule.from_expr(Function(inputs, outs[0] if len(outs) == 1 else TupleExpr(outs))), weights


__all__ = ["from_paddle"]
