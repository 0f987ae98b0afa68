"""ONNX Runtime: regions become models in ONNX's format, which the plugin backends/onnxruntime.c runs.

ROWS says which operators it takes: a function `write(w, call, names)` adds the nodes of a call to a model and gives the
names of its results, and a rule, where there is one, says which calls it is for."""

from __future__ import annotations

import base64
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .... import error
from ....runtime.packed import register_func
from ...ty import TensorType, TupleType
from .onnx_model import TYPES, ModelWriter
from .partition import partition_for
from .register import register_op_attr, register_pattern_table

Write = Callable[[ModelWriter, Any, List[str]], List[str]]
FLOATS = ("float32", "float64")


class Row(NamedTuple):
    """How a call is written, and which calls are taken."""

    write: Write
    rule: Optional[Callable[[Any], bool]] = None


ROWS: Dict[str, Row] = {}


def _row(*ops: str, rule: Optional[Callable[[Any], bool]] = None) -> Callable[[Write], Write]:
    def add(write: Write) -> Write:
        for op in ops:
            ROWS[op] = Row(write, rule)
        return write

    return add


def _sizes(t: TensorType) -> Tuple[Any, ...]:
    return tuple(getattr(d, "value", d) for d in t.shape)


def _shape(e: Any) -> Tuple[int, ...]:
    return _sizes(e.checked_type)


def _dtype(e: Any) -> str:
    return str(e.checked_type.dtype)


def _floats(e: Any) -> bool:
    return all(_dtype(a) in FLOATS for a in e.args) and _dtype(e) == _dtype(e.args[0])


# ---- element by element

_UNARY = {
    "nn.relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf",
    "negative": "Neg", "abs": "Abs", "ceil": "Ceil", "floor": "Floor", "sin": "Sin", "cos": "Cos",
}  # fmt: skip
_BINARY = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow", "maximum": "Max",
    "minimum": "Min",
}  # fmt: skip


@_row(*_UNARY, *_BINARY, rule=_floats)
def _elementwise(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node({**_UNARY, **_BINARY}[e.op.name], names)


@_row("clip", rule=_floats)
def _clip(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    ends = [w.constant(np.array(v, _dtype(e))) for v in (e.attrs.a_min, e.attrs.a_max)]
    return w.node("Clip", names + ends)


@_row("nn.leaky_relu", rule=_floats)
def _leaky_relu(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("LeakyRelu", names, alpha=float(e.attrs.alpha))


@_row("nn.softmax", "nn.log_softmax", rule=_floats)
def _softmax(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("Softmax" if e.op.name == "nn.softmax" else "LogSoftmax", names, axis=int(e.attrs.axis))


@_row("cast", rule=lambda e: _dtype(e) in FLOATS)
def _cast(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("Cast", names, to=TYPES[_dtype(e)])


# ---- products and convolutions


def _turned(w: ModelWriter, name: str, rank: int) -> str:
    """The last two dimensions exchanged."""
    return w.node("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2])[0]


@_row("nn.dense", "nn.matmul", "nn.batch_matmul", rule=_floats)
def _product(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    dense = e.op.name == "nn.dense"
    ta = not dense and bool(e.attrs.transpose_a)
    tb = dense or bool(e.attrs.transpose_b)
    ranks = [len(_shape(a)) for a in e.args]
    if ranks == [2, 2]:
        return w.node("Gemm", names, transA=int(ta), transB=int(tb))
    sides = [_turned(w, n, r) if t else n for n, r, t in zip(names, ranks, (ta, tb))]
    return w.node("MatMul", sides)


@_row("nn.bias_add", rule=_floats)
def _bias_add(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    rank = len(_shape(e))
    axis = e.attrs.axis % rank
    if axis != rank - 1:
        names = [names[0], *w.node("Reshape", [names[1], w.constant([-1] + [1] * (rank - 1 - axis), "int64")])]
    return w.node("Add", names)


def _pads(attrs: Any, rank: int) -> List[int]:
    """Before and after each dimension of space, as ONNX orders them."""
    p = list(attrs.padding)
    if len(p) == 2 * rank:
        return p
    return p * (2 * rank) if len(p) == 1 else p + p


_LAYOUTS = {
    "nn.conv1d": ("NCW", "OIW"), "nn.conv2d": ("NCHW", "OIHW"), "nn.conv3d": ("NCDHW", "OIDHW"),
}  # fmt: skip


def _plain_conv(e: Any) -> bool:
    a = e.attrs
    data, kernel = _LAYOUTS[e.op.name]
    plain = a.data_layout == data and a.kernel_layout == kernel and a.out_layout in ("", data, None)
    return plain and _floats(e)


@_row(*_LAYOUTS, rule=_plain_conv)
def _conv(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    a, rank = e.attrs, len(_shape(e)) - 2
    return w.node(
        "Conv", names, strides=list(a.strides), pads=_pads(a, rank), dilations=list(a.dilation), group=int(a.groups),
        kernel_shape=list(_shape(e.args[1])[2:]),
    )  # fmt: skip


def _plain_pool(e: Any) -> bool:
    return e.attrs.layout == "NCHW" and not e.attrs.get("ceil_mode", False) and _floats(e)


@_row("nn.max_pool2d", "nn.avg_pool2d", rule=lambda e: _plain_pool(e) and set(e.attrs.dilation) == {1})
def _pool(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    a = e.attrs
    more = {} if e.op.name == "nn.max_pool2d" else {"count_include_pad": int(a.count_include_pad)}
    windows: Dict[str, Any] = {"kernel_shape": list(a.pool_size), "strides": list(a.strides), "pads": _pads(a, 2)}
    return w.node("MaxPool" if e.op.name == "nn.max_pool2d" else "AveragePool", names, **windows, **more)


@_row("nn.global_avg_pool2d", "nn.global_max_pool2d", rule=_plain_pool)
def _global_pool(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("GlobalAveragePool" if e.op.name == "nn.global_avg_pool2d" else "GlobalMaxPool", names)


def _of_last(e: Any) -> bool:
    return _floats(e) and e.attrs.axis % len(_shape(e)) == len(_shape(e)) - 1 and e.attrs.scale


@_row("nn.layer_norm", rule=_of_last)
def _layer_norm(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("LayerNormalization", names if e.attrs.center else names[:2], epsilon=float(e.attrs.epsilon))


# ---- shapes and reductions


@_row("reshape", "nn.batch_flatten", "squeeze", "expand_dims")
def _reshape(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("Reshape", [names[0], w.constant(np.array(_shape(e), "int64"))], allowzero=1)


@_row("transpose")
def _transpose(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    rank = len(_shape(e))
    axes = [int(a) % rank for a in e.attrs.axes or ()] or list(range(rank))[::-1]
    return w.node("Transpose", names, perm=axes) if rank else names


@_row("concatenate")
def _concatenate(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    return w.node("Concat", names, axis=int(e.attrs.axis))


_REDUCE = {"mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "sum": "ReduceSum"}


@_row(*_REDUCE, rule=lambda e: _floats(e) and len(_shape(e.args[0])) > 0 and 0 not in _shape(e.args[0]))
def _reduce(w: ModelWriter, e: Any, names: List[str]) -> List[str]:
    rank = len(_shape(e.args[0]))
    given = e.attrs.axis
    axes = {int(a) % rank for a in ([given] if isinstance(given, int) else given or ())}
    if e.attrs.exclude:
        axes = set(range(rank)) - axes
    order = sorted(axes) if given is not None and axes else list(range(rank))
    kept = int(e.attrs.keepdims)
    if e.op.name == "sum":
        return w.node("ReduceSum", [names[0], w.constant(order, "int64")], keepdims=kept)
    return w.node(_REDUCE[e.op.name], names, axes=order, keepdims=kept)


# ---- what is taken, and what becomes of it


def _known(t: Any) -> bool:
    if isinstance(t, TupleType):
        return all(_known(f) for f in t.fields)
    return isinstance(t, TensorType) and t.dtype in TYPES and all(isinstance(d, int) for d in _sizes(t))


def _takes(e: Any) -> bool:
    rule = ROWS[e.op.name].rule
    return all(_known(x.checked_type) for x in (e, *e.args)) and (rule is None or bool(rule(e)))


for _name in ROWS:
    register_op_attr(_name, "target.onnxruntime", _takes)
register_pattern_table("onnxruntime", [])


def partition_for_onnxruntime(
    mod: Any, params: Optional[Dict[str, Any]] = None, mod_name: str = "default", **choice: Any
) -> Any:
    """The model with what ONNX Runtime takes as functions of it; with a cost, with what it is faster at
    (partition_for)."""
    return partition_for("onnxruntime", mod, params, mod_name, **choice)


_MODEL = "onnx.model"  # operators onnx.model0, onnx.model1 and so on, by the number of their arguments


def external_node(args: Sequence[Any], model: str, types: Sequence[TensorType]) -> Any:
    """A call that only ONNX Runtime can compute: the file of a model, in base64, and the types of its results."""
    from ... import op_rows
    from ...expr import Call
    from .. import register

    name = f"{_MODEL}{len(args)}"
    if name not in op_rows.rows():

        @register(name, ", ".join(f"in{i}" for i in range(len(args))), {"model": "", "types": [""], "shapes": [""]})
        class _:
            """a model of ONNX's format"""

            def type(*given: Any) -> Any:
                attrs = given[-1]
                made = [
                    TensorType([int(d) for d in s.split(",") if d], t) for t, s in zip(attrs.types, attrs.shapes)
                ]
                return made if len(made) > 1 else made[0]

            def compute(*given: Any) -> Any:
                raise error.UnsupportedError(f"{name}: only ONNX Runtime computes this; relay.build hands it there")

    shapes = [",".join(str(int(d)) for d in t.shape) for t in types]
    return Call(name, list(args), {"model": model, "types": [t.dtype for t in types], "shapes": shapes})


def to_model(func: Any) -> bytes:
    """A function as the file of an ONNX model: inputs and outputs in its order, constants as weights."""
    from ...backend.contrib import Graph

    g = Graph(func)
    if len(g.kernels) == 1 and g.kernels[0].name.startswith(_MODEL):
        return base64.b64decode(g.kernels[0].attrs[g.kernels[0].name]["model"])
    w = ModelWriter(g.symbol)
    name = {t.id: w.input(f"in{i}", t.dtype, t.shape) for i, t in enumerate(g.inputs)}
    name.update({t.id: w.constant(t.array) for t in g.constants})
    for k in g.kernels:
        made = ROWS[k.name].write(w, k.calls[0], [name[t.id] for t in k.inputs])
        name.update({t.id: n for t, n in zip(k.outputs, made)})
    for t in g.outputs:
        w.output(name[t.id], t.dtype, t.shape)
    return w.done()


def _generate(func: Any) -> Any:
    from ...backend.contrib import Module

    return Module("onnxruntime", to_model(func), {})


register_func("relay.ext.onnxruntime", _generate, override=True)

__all__: Sequence[str] = ["ROWS", "partition_for_onnxruntime", "to_model"]
