"""Rows for layers whose `call` is not made of Keras's operations: those that walk over time, and random ones."""

from __future__ import annotations

from typing import Any, List

from ...expr import RelayExpr, call_op, const
from ...expr import Tuple as TupleExpr
from .rows_nn import add, batch_norm, convolution, div, mul, resized, spatial, sub
from .rows_ops import known, rank
from .trace import Node, layer, refuse

# where Keras has the gates that the operators take in this order
ORDER = {"lstm": (0, 3, 1, 2), "gru": (0, 1, 2), "rnn": (0,)}
ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "hard_sigmoid": "", "linear": "Affine"}


def activation(f: Any) -> str:
    """The operator's name of an activation of Keras's."""
    name = getattr(f, "__name__", str(f))
    return ACTIVATIONS.get(name) or refuse(f"activation '{name}' of a recurrent layer")


@layer("LSTM", "GRU", "SimpleRNN")
def _recurrent(n: Node) -> List[RelayExpr]:
    """One layer: batch first, its gates side by side in the columns of the kernels."""
    op, cell = n.op, n.op.cell
    kind = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}[type(op).__name__]
    if n.arg(2, "mask") is not None or op.stateful:
        refuse("masked steps, or a state that lives between calls")
    x, units, dtype = n.tensor(0, "sequences", n.dtype), int(cell.units), n.dtype
    gates = len(ORDER[kind])

    def side(weight: Any) -> RelayExpr:
        whole = n.graph.parameter(weight)
        if gates == 1:
            return whole
        parts = list(call_op("split", [whole], indices_or_sections=gates, axis=-1))
        return call_op("concatenate", [TupleExpr([parts[k] for k in ORDER[kind]])], axis=-1)

    def columns(weight: Any) -> RelayExpr:
        return call_op("expand_dims", [call_op("transpose", [side(weight)], axes=[1, 0])], axis=0)

    args, names = [call_op("transpose", [x], axes=[1, 0, 2]), columns(cell.kernel), columns(cell.recurrent_kernel)], []
    if cell.use_bias:
        bias = side(cell.bias)
        if rank(bias) == 1:
            bias = call_op("concatenate", [TupleExpr([bias, call_op("zeros_like", [bias])])], axis=0)
        args.append(call_op("reshape", [bias], newshape=[1, 2 * gates * units]))
        names.append("bias")
    first = n.arg(1, "initial_state")
    states = [] if first is None else list(first) if isinstance(first, (list, tuple)) else [first]
    for state, name in zip(states, ("initial_h", "initial_c")):
        args.append(call_op("expand_dims", [n.as_tensor(state, dtype)], axis=0))
        names.append(name)
    chosen = [activation(cell.activation)]
    more = {}
    if kind != "rnn":
        gate = activation(cell.recurrent_activation)
        chosen = [gate, *chosen] if kind == "gru" else [gate, *chosen, *chosen]
    if kind == "gru":
        more["linear_before_reset"] = bool(cell.reset_after)
    made = call_op(
        f"nn.{kind}", args, hidden_size=units, inputs=names, activations=chosen,
        direction="reverse" if op.go_backwards else "forward", **more,
    )  # fmt: skip
    y = call_op("transpose", [call_op("squeeze", [made[0]], axis=[1])], axes=[1, 0, 2])
    if op.go_backwards:  # Keras gives the steps in the order in which it took them
        y = call_op("reverse", [y], axis=1)
    ends = [call_op("squeeze", [made[k]], axis=[0]) for k in range(1, 3 if kind == "lstm" else 2)]
    out = y if op.return_sequences else ends[0]
    return [out, *ends] if op.return_state else [out]


@layer("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianNoise", "GaussianDropout",
       "AlphaDropout", "ActivityRegularization")  # fmt: skip
def _training_only(n: Node) -> RelayExpr:
    return n.tensor(0, "inputs")


@layer("TimeDistributed")
def _time_distributed(n: Node) -> List[RelayExpr]:
    """All steps of all sequences are one batch of the layer inside."""
    from keras import ops

    if n.arg(2, "mask") is not None:
        refuse("masked steps")
    x = n.tensor(0, "inputs", n.dtype)
    steps = known(x, "TimeDistributed")

    def call(x: Any) -> Any:
        y = n.op.layer(ops.reshape(x, (steps[0] * steps[1], *steps[2:])))
        return ops.reshape(y, (steps[0], steps[1], *y.shape[1:]))

    return n.opened(call, x)


@layer("RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
def _any_cell(n: Node) -> List[RelayExpr]:
    """A cell of any kind, step after step, all of them written out."""
    import keras

    op = n.op
    if n.arg(2, "mask") is not None or n.arg(1, "initial_state") is not None or op.stateful:
        refuse("masked steps, states that are given, or a state that lives between calls")
    x = n.tensor(0, "sequences", n.dtype)
    sizes = known(x, "a recurrent layer")

    def call(x: Any) -> Any:
        states = op.get_initial_state(sizes[0])
        taken = range(sizes[1] - 1, -1, -1) if op.go_backwards else range(sizes[1])
        given = []
        for t in taken:
            y, states = op.cell(x[:, t], states)
            given.append(y)
        out = keras.ops.stack(given, axis=1) if op.return_sequences else given[-1]
        return [out, *keras.tree.flatten(states)] if op.return_state else out

    return n.opened(call, x)


@layer("Conv1D", "Conv2D", "Conv3D")
def _conv(n: Node) -> List[RelayExpr]:
    """Keras's operation on symbolic tensors knows no groups; the layer does."""
    op, x = n.op, n.tensor(0, "inputs", n.dtype)
    w = n.graph.parameter(op.kernel)
    if op.padding == "causal":
        reach = (op.kernel_size[0] - 1) * op.dilation_rate[0]
        at = spatial(n, x)[0].index("W")
        widths = [0] * (2 * rank(x))
        widths[2 * at] = reach
        x = call_op("nn.pad", [x, const(0, n.dtype)], pad_width=widths)
    out = convolution(n, x, w, False)
    if op.use_bias:
        axis = spatial(n, out)[0].index("C")
        out = call_op("nn.bias_add", [out, n.graph.parameter(op.bias)], axis=axis)
    return n.opened(op.activation, out) if op.activation is not None else [out]


@layer("BatchNormalization")
def _batch_normalization(n: Node) -> RelayExpr:
    op = n.op
    weights = [None if v is None else n.graph.parameter(v) for v in (op.gamma, op.beta)]
    moving = [n.graph.parameter(v) for v in (op.moving_mean, op.moving_variance)]
    return batch_norm(n.tensor(0, "inputs", n.dtype), *moving, *weights, op.axis, op.epsilon)


@layer("Embedding")
def _embedding(n: Node) -> RelayExpr:
    indices = n.tensor(0, "inputs", "int32")
    return call_op("take", [n.graph.parameter(n.op.embeddings), indices], axis=0, mode="clip")


@layer("PReLU")
def _prelu(n: Node) -> RelayExpr:
    x = n.tensor(0, "inputs", n.dtype)
    below = call_op("multiply", [n.graph.parameter(n.op.alpha), call_op("minimum", [x, const(0, n.dtype)])])
    return call_op("add", [call_op("nn.relu", [x]), below])


@layer("Masking")
def _masking(n: Node) -> RelayExpr:
    x = n.tensor(0, "inputs", n.dtype)
    kept = call_op("any", [call_op("not_equal", [x, const(n.op.mask_value, n.dtype)])], axis=[-1], keepdims=True)
    return call_op("multiply", [x, call_op("cast", [kept], dtype=n.dtype)])


@layer("Rescaling")
def _rescaling(n: Node) -> RelayExpr:
    x = n.tensor(0, "inputs", n.dtype)
    return add(mul(x, n.as_tensor(n.op.scale, n.dtype)), n.as_tensor(n.op.offset, n.dtype))


@layer("Normalization")
def _normalization(n: Node) -> RelayExpr:
    x, op = n.tensor(0, "inputs", n.dtype), n.op
    mean, variance = (n.as_tensor(n.graph.values(v, {}), n.dtype) for v in (op.mean, op.variance))
    spread = call_op("maximum", [call_op("sqrt", [variance]), const(1e-7, n.dtype)])
    return add(mul(x, spread), mean) if op.invert else div(sub(x, mean), spread)


@layer("Resizing")
def _resizing(n: Node) -> RelayExpr:
    op = n.op
    if op.antialias or op.crop_to_aspect_ratio or op.pad_to_aspect_ratio:
        refuse("antialias, or a kept aspect ratio")
    return resized(n, n.tensor(0, "inputs", n.dtype), (op.height, op.width), op.interpolation)
