"""Nodes of an ONNX model that Lathe has no converter for, left to ONNX Runtime.

In: a model.  It is cut around such nodes: each becomes a model of one node, and what remains is a model that Lathe
reads, in which their results are inputs and what they read are outputs.  Out: the module of what remains, with calls of
functions for ONNX Runtime put in again.  The types of their results are those that ONNX Runtime finds for the whole
model."""

from __future__ import annotations

import base64
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import numpy as np

from ... import error
from ..._ffi import call
from ..expr import Call, Function, GlobalVar, Tuple, TupleGetItem, bind, var
from ..op.contrib.onnxruntime import external_node
from ..transform import InferType
from ..ty import TensorType

_DTYPES = {
    "float": "float32", "double": "float64", "float16": "float16", "bool": "bool", "uint8": "uint8", "int8": "int8",
    "uint16": "uint16", "int16": "int16", "uint32": "uint32", "int32": "int32", "uint64": "uint64", "int64": "int64",
}  # fmt: skip


def _needs() -> Any:
    try:
        import onnx
        import onnxruntime
    except ImportError as e:
        raise error.UnsupportedError(
            f'from_onnx: external="onnxruntime" needs Python\'s packages onnx and onnxruntime: {e}'
        ) from None
    return onnx, onnxruntime


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class _Table:
    """Which nodes Lathe converts."""

    def __init__(self, model: Any):
        self._rows = {name: min(versions) for name, versions in call("onnx_ops")}
        self._opsets = {_domain(o.domain): o.version for o in model.opset_import}
        self._functions = {(_domain(f.domain), f.name): f for f in model.functions}

    def has(self, node: Any) -> bool:
        """Is there a converter for the node, and for all that is in it?"""
        domain = _domain(node.domain)
        bodies = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else []) + list(a.graphs)]
        if not all(self.has(n) for g in bodies for n in g.node):
            return False
        if (domain, node.op_type) in self._functions:
            return all(self.has(n) for n in self._functions[domain, node.op_type].node)
        since = self._rows.get(f"{domain}.{node.op_type}" if domain else node.op_type)
        return since is not None and since <= self._opsets.get(domain, 1)


def _names_in(node: Any) -> List[str]:
    """What a node reads, in its bodies too, each once."""
    found: Dict[str, None] = dict.fromkeys(n for n in node.input if n)
    for a in node.attribute:
        for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
            own: Set[str] = {i.name for i in g.input} | {t.name for t in g.initializer}
            for inner in g.node:
                found.update(dict.fromkeys(n for n in _names_in(inner) if n not in own))
                own.update(inner.output)
            found.update(dict.fromkeys(o.name for o in g.output if o.name not in own))
    return list(found)


def _bind_sizes(model: Any, shape: Optional[Dict[str, Any]]) -> None:
    """Sizes of inputs that the caller gave, written into the model."""
    for i in model.graph.input:
        for d, size in zip(i.type.tensor_type.shape.dim, (shape or {}).get(i.name, ())):
            if isinstance(size, int) and size >= 0:
                d.dim_value = size


def _infer(onnx: Any, onnxruntime: Any, model: Any, names: Sequence[str]) -> Dict[str, Any]:
    """Types of values, as ONNX Runtime finds them."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:  # (its own classes have no common one)
        raise error.UnsupportedError(f"from_onnx: ONNX Runtime does not take the model: {e}") from None
    found = {o.name: _type(o) for o in session.get_outputs()}
    unsure = [n for n, t in found.items() if not t.shape]
    if unsure:
        found.update({n: TensorType(v.shape, found[n].dtype) for n, v in _tried(session, unsure).items()})
    return found


def _tried(session: Any, names: Sequence[str]) -> Dict[str, Any]:
    """Values on inputs of zeros: ONNX Runtime tells no sizes both of a scalar and where an operator has no rule for
    them.  A run that gives others later fails with its sentence."""
    inputs = {i.name: _type(i) for i in session.get_inputs()}
    zeros = {n: np.zeros([int(d) for d in t.shape], t.dtype) for n, t in inputs.items()}
    try:
        return dict(zip(names, session.run(list(names), zeros)))
    except Exception as e:
        raise error.UnsupportedError(
            f"from_onnx: ONNX Runtime tells no sizes of '{names[0]}', and a run on zeros to find them failed: {e}"
        ) from None


def _type(value: Any) -> TensorType:
    dtype = _DTYPES.get(value.type[len("tensor(") : -1]) if value.type.startswith("tensor(") else None
    if dtype is None:
        raise error.UnsupportedError(f"from_onnx: '{value.name}', which ONNX Runtime is to know, is a {value.type}")
    if not all(isinstance(d, int) for d in value.shape):
        raise error.UnsupportedError(
            f"from_onnx: the sizes of '{value.name}' are {value.shape}, and ONNX Runtime is to know them all; "
            "give those of the inputs by shape={…}"
        )
    return TensorType(value.shape, dtype)


class _Piece:
    """A node for ONNX Runtime: what it reads and gives, and the model that it is."""

    def __init__(self, onnx: Any, model: Any, node: Any, weights: Dict[str, Any], number: int):
        self.reads = [n for n in _names_in(node) if n not in weights]
        self.gives = [n for n in node.output if n]
        self.symbol = f"onnx_external_{number}"
        one = onnx.ModelProto(ir_version=model.ir_version)
        one.opset_import.extend(model.opset_import)
        one.functions.extend(model.functions)
        one.graph.name = self.symbol
        one.graph.node.append(node)
        one.graph.initializer.extend(weights[n] for n in _names_in(node) if n in weights)
        one.graph.input.extend(onnx.ValueInfoProto(name=n) for n in self.reads)
        one.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self.gives)
        self.model = one

    def function(self, onnx: Any, types: Dict[str, TensorType]) -> Function:
        """The function of the module; types: of what it reads and gives."""
        for port in (*self.model.graph.input, *self.model.graph.output):
            port.CopyFrom(_port(onnx, port.name, types[port.name]))
        params = [var(f"in{i}", type_annotation=types[n]) for i, n in enumerate(self.reads)]
        code = base64.b64encode(self.model.SerializeToString()).decode()
        body = external_node(params, code, [types[n] for n in self.gives])
        attrs = {"Primitive": 1, "Inline": 1, "Compiler": "onnxruntime", "global_symbol": self.symbol}
        return Function(params, body, attrs=attrs)


def _rest(onnx: Any, model: Any, pieces: Sequence[_Piece], types: Dict[str, TensorType]) -> Any:
    """The model without the pieces; its outputs are its own and then what the pieces read."""
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    gone = {n for p in pieces for n in p.gives}
    kept = [n for n in model.graph.node if not gone.intersection(n.output)]
    del rest.graph.node[:], rest.graph.output[:]
    rest.graph.node.extend(kept)
    rest.graph.input.extend(_port(onnx, n, types[n]) for p in pieces for n in p.gives)
    own = [o.name for o in model.graph.output]
    rest.graph.output.extend(onnx.ValueInfoProto(name=n) for n in own + [n for p in pieces for n in p.reads])
    return rest


def _port(onnx: Any, name: str, t: TensorType) -> Any:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype))
    return onnx.helper.make_tensor_value_info(name, dtype, [int(d) for d in t.shape])


def _joined(mod: Any, pieces: Sequence[_Piece], names: Sequence[str], outputs: int, onnx: Any) -> Any:
    """The module of the rest with calls of the pieces in it.  names: of the rest's inputs, the pieces' results last."""
    main = mod["main"]
    inputs = dict(zip(names, main.params))
    results = {n for p in pieces for n in p.gives}
    fields = list(main.body.fields) if isinstance(main.body, Tuple) else [main.body]
    types = {n: v.checked_type for n, v in inputs.items()}
    types.update({n: f.checked_type for n, f in zip([n for p in pieces for n in p.reads], fields[outputs:])})
    at = outputs
    for p in pieces:
        args = fields[at : at + len(p.reads)]
        mod[p.symbol] = p.function(onnx, types)
        made = Call(GlobalVar(p.symbol), args)
        values = [made] if len(p.gives) == 1 else [TupleGetItem(made, i) for i in range(len(p.gives))]
        body: Any = bind(Tuple(fields), {inputs[n]: v for n, v in zip(p.gives, values)})
        fields = list(body.fields)
        at += len(p.reads)
    own = fields[:outputs]
    params = [v for n, v in inputs.items() if n not in results]
    mod["main"] = Function(params, own[0] if outputs == 1 else Tuple(own))
    return InferType()(mod)


def import_external(model: Any, shape: Optional[Dict[str, Any]], read: Callable[[bytes], Any]) -> Any:
    """The module of a model (an onnx.ModelProto, its bytes, or a path); `read` imports one that Lathe has all of."""
    onnx, onnxruntime = _needs()
    if isinstance(model, (str, os.PathLike)):
        model = onnx.load(os.fspath(model))
    elif isinstance(model, (bytes, bytearray)):
        model = onnx.load_model_from_string(bytes(model))
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    table = _Table(whole)
    weights = {t.name: t for t in whole.graph.initializer}
    unknown = [n for n in whole.graph.node if not table.has(n)]
    pieces = [_Piece(onnx, whole, n, weights, i) for i, n in enumerate(unknown)]
    if not pieces:
        return read(whole.SerializeToString())
    _bind_sizes(whole, shape)
    types = _infer(onnx, onnxruntime, whole, [n for p in pieces for n in p.gives])
    rest = _rest(onnx, whole, pieces, types)
    names = [i.name for i in rest.graph.input if i.name not in weights]
    return _joined(read(rest.SerializeToString()), pieces, names, len(whole.graph.output), onnx)
