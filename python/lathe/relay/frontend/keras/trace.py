"""Graphs of Keras's operations become expressions of relay.

Keras calls a layer on symbolic tensors (KerasTensor) and keeps what was called as a graph of operations.  A layer
in this graph that has no row of its own is opened: its `call` runs on symbolic tensors in turn, until only
operations with rows are left.  So functional, sequential and subclassed models and layers that users wrote are one."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from .... import error
from ....runtime.ndarray import NDArray, array
from ...expr import RelayExpr, TupleWrapper, call_op, const, var

Row = Callable[["Node"], Any]
ROWS: Dict[str, Row] = {}  # of operations, by the names of their classes
LAYERS: Dict[str, Row] = {}  # of layers, which may have the name of an operation


def row(*names: str, table: Dict[str, Row] = ROWS) -> Callable[[Row], Row]:
    """The function is the row of these operations."""

    def put(f: Row) -> Row:
        for name in names:
            if name in table:
                raise error.InternalError(f"'{name}' has two rows")
            table[name] = f
        return f

    return put


def layer(*names: str) -> Callable[[Row], Row]:
    """The function is the row of these layers."""
    return row(*names, table=LAYERS)


def refuse(what: str) -> Any:
    """Raises: this is not supported."""
    raise error.UnsupportedError(what)


class Node:
    """One operation that was called: the arguments as expressions, and what Keras knows of its results."""

    def __init__(self, graph: "Graph", op: Any, args: Sequence[Any], kwargs: Dict[str, Any], outputs: Sequence[Any]):
        self.graph, self.op, self.args, self.kwargs, self.outputs = graph, op, list(args), kwargs, list(outputs)

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        """An argument by place or name, as Keras got it; a tensor is an expression."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    def tensor(self, index: int, name: str = "", dtype: Optional[str] = None) -> RelayExpr:
        """An argument that is a tensor; a number becomes one, of the dtype given or the result's."""
        return self.as_tensor(self.arg(index, name), dtype)

    def as_tensor(self, x: Any, dtype: Optional[str] = None) -> RelayExpr:
        """A value of an argument as an expression of this dtype."""
        if not isinstance(x, RelayExpr):
            x = const(np.asarray(x, dtype or (self.dtype if not hasattr(x, "dtype") else None)))
        found = x.checked_type.dtype
        return x if dtype is None or found == dtype else call_op("cast", [x], dtype=dtype)

    def opened(self, f: Callable[..., Any], *tensors: RelayExpr) -> List[RelayExpr]:
        """What a function of Keras's operations gives for these tensors."""
        import keras

        types = [x.checked_type for x in tensors]
        shapes = [[d if isinstance(d, int) else None for d in t.shape] for t in types]
        inputs = [keras.Input(batch_shape=s, dtype=t.dtype) for s, t in zip(shapes, types)]
        return self.graph.function(graph_of(inputs, OWN.get(getattr(f, "__name__", ""), f)(*inputs)), tensors)

    @property
    def dtype(self) -> str:
        """The dtype of the first result."""
        return str(self.outputs[0].dtype)

    @property
    def shape(self) -> Tuple[Optional[int], ...]:
        """The sizes of the first result; None where one is open."""
        return tuple(self.outputs[0].shape)


class Graph:
    """The conversion of one model: parameters by name."""

    def __init__(self) -> None:
        self.params: Dict[str, NDArray] = {}
        self.vars: Dict[int, RelayExpr] = {}
        self.keep: List[Any] = []  # what vars is keyed by

    def parameter(self, v: Any) -> RelayExpr:
        """A weight of the model."""
        if id(v) not in self.vars:
            import keras

            name = str(getattr(v, "path", v.name)).replace("/", ".")
            while name in self.params:
                name += "_"
            value = np.ascontiguousarray(keras.ops.convert_to_numpy(v))
            self.params[name] = array(value)
            self.vars[id(v)] = var(name, shape=value.shape, dtype=str(v.dtype))
            self.keep.append(v)
        return self.vars[id(v)]

    def function(self, function: Any, inputs: Sequence[RelayExpr]) -> List[RelayExpr]:
        """The outputs of a graph of Keras, each an expression."""
        values = {id(t): x for t, x in zip(function._inputs, inputs)}
        for depth in sorted(function._nodes_by_depth, reverse=True):
            for node in function._nodes_by_depth[depth]:
                if node.is_input:
                    continue
                args, kwargs = self.values((node.arguments.args, node.arguments.kwargs), values)
                made = self.call(node.operation, args, kwargs, node)
                made = list(made) if isinstance(made, (list, tuple, TupleWrapper)) else [made]
                if len(made) != len(node.outputs):
                    name = name_of(node.operation)
                    raise error.InternalError(f"{name}: {len(made)} results, not {len(node.outputs)}")
                values.update({id(t): x for t, x in zip(node.outputs, made)})
        return [values[id(t)] for t in function._outputs]

    def values(self, x: Any, known: Dict[int, RelayExpr]) -> Any:
        """Arguments of a node with expressions in the place of tensors and weights."""
        import keras

        if isinstance(x, keras.KerasTensor):
            return known[id(x)]
        if isinstance(x, keras.Variable):
            return self.parameter(x)
        if isinstance(x, (list, tuple)):
            return type(x)(self.values(v, known) for v in x) if type(x) in (list, tuple) else x
        if isinstance(x, dict):
            return {k: self.values(v, known) for k, v in x.items()}
        if hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, np.ndarray):
            return keras.ops.convert_to_numpy(x)
        return x

    def call(self, op: Any, args: Any, kwargs: Any, node: Any) -> Any:
        """What one operation gives."""
        opens = is_layer(op)
        found = (LAYERS if opens else ROWS).get(type(op).__name__) if is_ours(type(op)) else None
        try:
            if found is not None:
                return found(Node(self, op, args, kwargs, node.outputs))
            if opens:
                return self.open(op, args, kwargs, node)
        except error.LatheError as e:
            raise type(e)(f"{name_of(op)}: {e.message}") from None
        raise error.UnsupportedError(f"Keras's operation {name_of(op)} has no row")

    def open(self, layer: Any, args: Any, kwargs: Any, node: Any) -> List[RelayExpr]:
        """A layer that has no row: the operations that its `call` is made of."""
        import keras

        given: List[RelayExpr] = []
        inputs: List[Any] = []

        def symbolic(x: Any, spec: Any) -> Any:
            if isinstance(spec, keras.KerasTensor):
                given.append(x)
                inputs.append(keras.Input(batch_shape=spec.shape, dtype=spec.dtype))
                return inputs[-1]
            if isinstance(spec, (list, tuple)) and type(spec) in (list, tuple):
                return type(spec)(symbolic(a, b) for a, b in zip(x, spec))
            if isinstance(spec, dict):
                return {k: symbolic(x[k], v) for k, v in spec.items()}
            return spec

        new_args = symbolic(tuple(args), tuple(node.arguments.args))
        new_kwargs = symbolic(dict(kwargs), dict(node.arguments.kwargs))
        return self.function(traced(layer, inputs, new_args, new_kwargs), given)


def is_layer(op: Any) -> bool:
    """Layers have weights and a `call` that may be opened; operations have rows."""
    import keras

    return isinstance(op, keras.Layer)


def is_ours(cls: Any) -> bool:
    """Is this class Keras's own?  A user's layer may have the name of one."""
    return cls.__module__.split(".")[0] == "keras"


def name_of(op: Any) -> str:
    """An operation as messages name it."""
    own, kind = op.name, type(op).__name__
    return f"{kind} '{own}'" if is_layer(op) else kind


def traced(layer: Any, inputs: Sequence[Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
    """The graph of what `call` does with these symbolic tensors."""
    if getattr(layer, "compute_dtype", None) != getattr(layer, "variable_dtype", None) and layer.weights:
        refuse(f"it computes in {layer.compute_dtype} and keeps its weights in {layer.variable_dtype}; only one dtype")
    takes = inspect.signature(layer.call).parameters
    kwargs = {k: v for k, v in kwargs.items() if k in takes or any(p.kind == p.VAR_KEYWORD for p in takes.values())}
    if "training" in takes:
        kwargs["training"] = False
    try:
        with spelled_out(layer):
            outputs = layer.call(*args, **kwargs)
    except error.LatheError:
        raise
    except Exception as e:
        why = str(e).split(". ")[0].splitlines()[0]
        raise error.UnsupportedError(
            f"{name_of(layer)} cannot be called on symbolic tensors ({type(e).__name__}: {why})"
        ) from e
    return graph_of(inputs, outputs)


def graph_of(inputs: Sequence[Any], outputs: Any) -> Any:
    """The graph between symbolic tensors."""
    import keras

    return keras.Function(list(inputs), [copied(t, inputs) for t in keras.tree.flatten(outputs) if t is not None])


def _operation(name: str) -> Callable[..., Any]:
    """The function of this name in keras.ops, which is imported when it is called."""

    def call(x: Any) -> Any:
        import keras

        return getattr(keras.ops, name)(x)

    return call


# activations that Keras computes with its backend, made of its operations
OWN: Dict[str, Callable[..., Any]] = {
    "mish": lambda x: x * _operation("tanh")(_operation("softplus")(x)),
    "hard_silu": _operation("hard_silu"),
    "sparsemax": _operation("sparsemax"),
}


@contextlib.contextmanager
def spelled_out(layer: Any) -> Iterator[None]:
    """While it lasts, the layer's activation is one that symbolic tensors go through."""
    before = getattr(layer, "activation", None)
    other = OWN.get(getattr(before, "__name__", ""))
    if other is not None:
        layer.activation = other
    try:
        yield
    finally:
        if other is not None:
            layer.activation = before


def copied(t: Any, inputs: Sequence[Any]) -> Any:
    """An output; one that is an input is no node of Keras's, and an output that depends on none is no tensor of it."""
    import keras

    if not isinstance(t, keras.KerasTensor):
        return keras.ops.add(t, keras.ops.cast(keras.ops.sum(keras.ops.zeros_like(inputs[0])), t.dtype))
    return keras.ops.copy(t) if any(t is i for i in inputs) else t
