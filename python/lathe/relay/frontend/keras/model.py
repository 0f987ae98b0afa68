"""from_keras: what a model takes and gives, and the module that is made of it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .... import error
from ...._ir.module import IRModule
from ....runtime.ndarray import NDArray
from ...expr import Function, RelayExpr, call_op, var
from ...expr import Tuple as TupleExpr
from ...ty import Any_, TensorType
from . import rows_layers, rows_nn, rows_ops  # noqa: F401  (each fills the tables of rows)
from .trace import Graph, traced

CHANNELS_FIRST = ("NCW", "NCHW", "NCDHW")
CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


def model_inputs(model: Any, shape: Dict[str, Any], layout: str) -> Tuple[Any, List[Any], List[str]]:
    """Symbolic inputs with their sizes, as the model's `call` takes them, flat, and their names."""
    import keras

    specs = getattr(model, "_inputs_struct", None)
    if specs is None:
        specs = getattr(model, "inputs", None)
    if specs is None and not shape:
        raise error.ArgumentError('the model does not say what its inputs are: shape={"input": (1, 28, 28, 1)} does')
    if specs is None:
        specs = [keras.KerasTensor(tuple(s), name=name) for name, s in shape.items()]
    if isinstance(specs, (list, tuple)) and len(specs) == 1:
        specs = specs[0]
    flat = keras.tree.flatten(specs)
    names = [t.name for t in flat]
    unknown = [n for n in shape if n not in names]
    if unknown:
        raise error.ArgumentError(f"the model has no input '{unknown[0]}'; it has {', '.join(names)}")
    inputs = []
    for t in flat:
        dims = tuple(t.shape)
        if t.name in shape:
            given = tuple(None if not isinstance(d, int) or d < 0 else d for d in shape[t.name])
            if len(given) != len(dims):
                raise error.ArgumentError(f"input '{t.name}' has {len(dims)} dimensions, shape gives it {len(given)}")
            if len(given) == len(layout) and layout in CHANNELS_FIRST:
                given = (given[0], *given[2:], given[1])
            wrong = [(d, g) for d, g in zip(dims, given) if d is not None and d != g]
            if wrong:
                raise error.ArgumentError(
                    f"input '{t.name}' is {dims} in the model, which {shape[t.name]} does not fit"
                )
            dims = given
        elif None in dims:
            raise error.ArgumentError(
                f"input '{t.name}' is {dims}: shape={{'{t.name}': …}} says its sizes (None keeps one open)"
            )
        inputs.append(keras.Input(batch_shape=dims, dtype=t.dtype, name=t.name))
    return keras.tree.pack_sequence_as(specs, inputs), inputs, names


def check_version() -> None:
    """Raises unless Keras is there, and new enough."""
    try:
        import keras
    except ImportError:
        raise error.NotFoundError("from_keras needs Keras, which cannot be imported here: pip install keras") from None
    if int(keras.__version__.split(".")[0]) < 3:
        raise error.UnsupportedError(
            f"from_keras takes models of Keras 3, this is {keras.__version__}; tf2onnx and from_onnx take older ones"
        )


def from_keras(
    model: Any, shape: Optional[Dict[str, Any]] = None, layout: str = "NCHW"
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """A module and its parameters from a model of Keras 3: functional, sequential or subclassed.

    shape says the sizes of inputs that the model leaves open, by name; None keeps one open.  layout is how the module
    takes and gives images: as TVM has it, "NCHW" moves the channels of inputs and outputs with four dimensions to the
    front ("NCW", "NCDHW": of three, of five), "NHWC" leaves all as Keras has them."""
    check_version()
    import keras

    if layout not in CHANNELS_FIRST + CHANNELS_LAST:
        raise error.ArgumentError(f"layout '{layout}': one of {', '.join(CHANNELS_FIRST + CHANNELS_LAST)} is wanted")
    if not isinstance(model, keras.Layer):
        raise error.TypeError(f"from_keras takes a model of Keras 3, not a {type(model).__name__}")
    if keras.config.image_data_format() == "channels_first":
        layout = CHANNELS_LAST[CHANNELS_FIRST.index(layout)] if layout in CHANNELS_FIRST else layout
    structure, inputs, names = model_inputs(model, shape or {}, layout)
    moved = [layout in CHANNELS_FIRST and len(t.shape) == len(layout) for t in inputs]
    params, given = [], []
    for t, name, first in zip(inputs, names, moved):
        dims = [Any_() if d is None else d for d in t.shape]
        if first:
            dims = [dims[0], dims[-1], *dims[1:-1]]
        params.append(var(name, TensorType(dims, str(t.dtype))))
        given.append(_channels(params[-1], last=True) if first else params[-1])
    graph = Graph()
    args = structure if isinstance(structure, tuple) else (structure,)
    outputs = graph.function(traced(model, inputs, args, {}), given)
    outputs = [
        _channels(x, last=False) if layout in CHANNELS_FIRST and len(x.checked_type.shape) == len(layout) else x
        for x in outputs
    ]
    body = outputs[0] if len(outputs) == 1 else TupleExpr(outputs)
    mod = IRModule.from_expr(Function(params + list(graph.vars.values()), body))
    return mod, graph.params


def _channels(x: RelayExpr, last: bool) -> RelayExpr:
    """The tensor with its channels moved from or to the second place."""
    n = len(x.checked_type.shape)
    axes = [0, *range(2, n), 1] if last else [0, n - 1, *range(1, n - 1)]
    return call_op("transpose", [x], axes=axes)
