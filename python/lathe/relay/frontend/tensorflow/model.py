"""from_tensorflow: frozen graphs and SavedModels."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .... import error
from ...._ir.module import IRModule
from ....runtime.ndarray import NDArray
from ...expr import Function, RelayExpr, var
from ...expr import Tuple as TupleExpr
from ...ty import TensorType
from . import bundle, graph, proto


def from_tensorflow(
    graph: Any,  # pylint: disable=redefined-outer-name
    layout: str = "NHWC",
    shape: Optional[Dict[str, Any]] = None,
    outputs: Optional[Sequence[str]] = None,
    convert_config: Any = None,
    *,
    signature: str = "serving_default",
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """A module and its parameters from a model of TensorFlow's, without TensorFlow.

    graph is a frozen GraphDef (the message, its bytes, or the path of a .pb file) or the folder of a SavedModel, of
    which `signature` is imported.  shape says the sizes of inputs that the model leaves open: {"x": (1, 224, 224, 3)}.
    outputs names what a GraphDef gives, "node" or "node:1"; without it, the nodes that nobody reads.  layout and
    convert_config, which TVM needs, change nothing: layouts inside are the compiler's choice, those of inputs and
    outputs the model's."""
    if layout not in ("NHWC", "NCHW", None):
        raise error.ArgumentError(f"from_tensorflow: layout is NHWC or NCHW, not {layout!r}")
    given = dict(shape or {})
    if isinstance(graph, (str, os.PathLike)) and os.path.isdir(graph):
        return _saved_model(pathlib.Path(graph), given, outputs, signature)
    message = proto.read(_bytes(graph), "GraphDef")
    if not message.node:
        raise error.ArgumentError("from_tensorflow: the graph has no nodes; a SavedModel is given as its folder")
    wanted = list(outputs) if outputs else _last(message.node)
    names = {n.name: n.name for n in message.node if n.op in ("Placeholder", "PlaceholderV2")}
    return _convert(message, names, {w: w for w in wanted}, given, _no_variables)


def _bytes(given: Any) -> bytes:
    if isinstance(given, (str, os.PathLike)):
        try:
            return pathlib.Path(given).read_bytes()
        except OSError as e:
            raise error.IOError(f"from_tensorflow: {e}") from None
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if hasattr(given, "as_graph_def"):
        given = given.as_graph_def()
    if hasattr(given, "SerializeToString"):
        return bytes(given.SerializeToString())
    raise error.TypeError(
        "from_tensorflow takes a GraphDef, its bytes, a .pb file or the folder of a SavedModel, "
        f"not a {type(given).__name__}"
    )


def _no_variables(name: str) -> np.ndarray:
    return graph.refuse(f"variable '{name}' of a graph that is not frozen; tf.saved_model.save writes its values too")


def _last(nodes: Sequence[Any]) -> List[str]:
    """Nodes that nobody reads."""
    read = {graph.place_of(i.lstrip("^"))[0] for n in nodes for i in n.input}
    idle = ("NoOp", "Assert", "SaveV2", "RestoreV2", "Placeholder", "Const")
    return [n.name for n in nodes if n.name not in read and n.op not in idle]


def _saved_model(
    folder: pathlib.Path, shape: Dict[str, Any], outputs: Optional[Sequence[str]], signature: str
) -> Tuple[IRModule, Dict[str, NDArray]]:
    saved = proto.read(_bytes(folder / "saved_model.pb"), "SavedModel")
    graphs = [g for g in saved.meta_graphs if g.info is not None and "serve" in g.info.tags] or saved.meta_graphs
    if not graphs or graphs[0].graph_def is None:
        raise error.ArgumentError(f"from_tensorflow: '{folder}' has no graph for serving")
    meta = graphs[0]
    found = meta.signature_def.get(signature)
    if found is None:
        there = sorted(s for s in meta.signature_def if not s.startswith("__"))
        raise error.ArgumentError(
            f"from_tensorflow: there is no signature '{signature}'; there are {', '.join(there) or 'none'}"
        )
    inputs = {graph.place_of(t.name)[0]: key for key, t in sorted(found.inputs.items())}
    keys = list(outputs) if outputs else sorted(found.outputs)
    absent = [k for k in keys if k not in found.outputs]
    if absent:
        raise error.ArgumentError(f"from_tensorflow: the signature has no output '{absent[0]}'")
    wanted = {key: found.outputs[key].name for key in keys}
    for name, t in found.inputs.items():
        shape.setdefault(name, proto.shape_of(t.shape))
    return _convert(meta.graph_def, inputs, wanted, shape, _variables(folder, meta.graph_def))


def _variables(folder: pathlib.Path, graph_def: Any) -> Any:
    """Values of variables by their shared name: the restoring function says which entry of the file goes where."""
    places = _restored(graph_def)
    prefix = folder / "variables" / "variables"
    kept: List[Any] = []

    def read(name: str) -> np.ndarray:
        if not kept:
            kept.append(bundle.Bundle(prefix))
        return kept[0][places.get(name, name)]

    return read


def _restored(graph_def: Any) -> Dict[str, str]:
    """Shared names of variables, and the entries that they are restored from."""
    nodes = {n.name: n for n in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function} if graph_def.library is not None else {}
    found: Dict[str, str] = {}
    handle = lambda n: bytes(n.attr["shared_name"].s).decode() or n.name  # noqa: E731

    def follow(body: Dict[str, Any], variables: Dict[str, str]) -> None:
        for n in body.values():
            if n.op not in ("AssignVariableOp", "Assign") or n.input[0].split(":")[0] not in variables:
                continue
            source, number = graph.place_of(n.input[1])[::2]
            while source in body and body[source].op == "Identity":
                source, number = graph.place_of(body[source].input[0])[::2]
            restore = body.get(source)
            if restore is None or restore.op != "RestoreV2":
                continue
            names = body.get(graph.place_of(restore.input[1])[0])
            if names is not None and names.op == "Const":
                texts = names.attr["value"].tensor.bytes
                if number < len(texts):
                    found[variables[n.input[0].split(":")[0]]] = bytes(texts[number]).decode()

    follow(nodes, {n.name: handle(n) for n in nodes.values() if n.op in ("VarHandleOp", "VariableV2")})
    for n in nodes.values():
        target = n.attr["f"].func if "f" in n.attr else None
        f = functions.get(target.name) if target is not None else None
        if f is None or "RestoreV2" not in {b.op for b in f.node_def}:
            continue
        given = [graph.place_of(i)[0] for i in n.input if i[:1] != "^"]
        pairs = zip((a.name for a in f.signature.input_arg), given)
        variables = {a: handle(nodes[g]) for a, g in pairs if g in nodes and nodes[g].op == "VarHandleOp"}
        follow({b.name: b for b in f.node_def}, variables)
    return found


def _input(node: Any, name: str, shape: Dict[str, Any]) -> RelayExpr:
    kind = node.attr.get("dtype") or node.attr.get("T")
    if kind is None:
        raise error.ArgumentError(f"from_tensorflow: input '{name}' has no dtype")
    dtype = proto.dtype_of(kind.type)
    own = proto.shape_of(node.attr["shape"].shape) if "shape" in node.attr else None
    dims = shape.get(name, shape.get(node.name, own))
    if dims is None or any(isinstance(d, int) and d < 0 or d is None for d in dims):
        raise error.ArgumentError(
            f"from_tensorflow: the sizes of input '{name}' are open ({dims}); say them: shape={{'{name}': (1, …)}}"
        )
    return var(name, TensorType(list(dims), dtype))


def _convert(
    message: Any, inputs: Dict[str, str], wanted: Dict[str, str], shape: Dict[str, Any], read: Any
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """inputs: nodes and the names of their variables; wanted: names of outputs and what they read."""
    functions = {f.signature.name: f for f in message.library.function} if message.library is not None else {}
    missing = graph.absent(message.node, functions, list(wanted.values()))
    if missing:
        listed = ", ".join(f"{n} ({k})" if k > 1 else n for n, k in sorted(missing.items()))
        raise error.UnsupportedError(f"from_tensorflow: operators that are not supported: {listed}")
    g = graph.Graph(message.node, functions, read)
    params = []
    for node, name in inputs.items():
        if node not in g.nodes:
            raise error.ArgumentError(f"from_tensorflow: there is no node '{node}'")
        params.append(_input(g.nodes[node], name, shape))
        g.values[node] = params[-1]
    outs = [graph.expr(g.value(w)) for w in wanted.values()]
    body = outs[0] if len(outs) == 1 else TupleExpr(outs)
    return IRModule.from_expr(Function(params, body)), {}


__all__ = ["from_tensorflow"]
