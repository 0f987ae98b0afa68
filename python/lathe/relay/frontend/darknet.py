"""from_darknet: networks of Darknet, a text of layers (net.cfg) and a file of numbers (net.weights).

Each layer is a section of the text, and reads what the layer before it gives; "route" and "shortcut" name others by
their places.  The numbers lie in the order of the layers."""

from __future__ import annotations

import os
import pathlib
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ... import error
from ..._ir.module import IRModule
from ...runtime.ndarray import NDArray, array
from ..expr import Function, RelayExpr, call_op, var
from ..expr import Tuple as TupleExpr
from ..ty import TensorType
from .functions import expm1, softplus
from .values import like, op, refuse, sizes

Section = Tuple[str, Dict[str, str]]


class Layer(NamedTuple):
    """A layer as rows see it."""

    net: "Net"
    number: int
    kind: str
    options: Dict[str, str]

    def i(self, name: str, default: int = 0) -> int:
        """An option that is a number."""
        return int(self.options.get(name, default))

    def ints(self, name: str) -> List[int]:
        """An option that is a list of numbers."""
        return [int(v) for v in self.options.get(name, "").split(",") if v.strip()]


class Net:
    """What is made so far: the outputs of the layers, and the numbers that are not read yet."""

    def __init__(self, numbers: np.ndarray):
        self.made: List[RelayExpr] = []
        self.results: List[RelayExpr] = []
        self.numbers, self.at = numbers, 0
        self.inputs: List[RelayExpr] = []
        self.params: Dict[str, NDArray] = {}

    def take(self, *shape: int) -> np.ndarray:
        """The next numbers."""
        count = int(np.prod(shape, dtype=np.int64))
        if count < 0 or self.at + count > self.numbers.size:
            raise error.ArgumentError("from_darknet: the file of weights ends too early for this network")
        self.at += count
        return self.numbers[self.at - count : self.at].reshape(shape)

    def param(self, name: str, value: np.ndarray) -> RelayExpr:
        """A parameter of the module."""
        made = var(name, TensorType(list(value.shape), "float32"))
        self.inputs.append(made)
        self.params[name] = array(np.ascontiguousarray(value, "float32"))
        return made

    def layer(self, number: int, here: int) -> RelayExpr:
        """What another layer gives; below 0 it is counted from here."""
        at = here + number if number < 0 else number
        if not 0 <= at < len(self.made):
            raise error.ArgumentError(f"from_darknet: layer {here} reads layer {at}, which is none before it")
        return self.made[at]


ACTIVATIONS: Dict[str, Callable[[Any], RelayExpr]] = {
    "linear": lambda x: x,
    "elu": lambda x: op("where", op("greater", x, like(0, x)), x, expm1(x)),
    "leaky": lambda x: op("nn.leaky_relu", x, alpha=0.1),
    "logistic": lambda x: op("sigmoid", x),
    "mish": lambda x: op("multiply", x, op("tanh", softplus(x))),
    "relu": lambda x: op("nn.relu", x),
    "relu6": lambda x: op("clip", x, a_min=0.0, a_max=6.0),
    "swish": lambda x: op("multiply", x, op("sigmoid", x)),
    "tanh": lambda x: op("tanh", x),
}


def _activated(n: Layer, x: RelayExpr, default: str) -> RelayExpr:
    name = n.options.get("activation", default)
    return ACTIVATIONS[name](x) if name in ACTIVATIONS else refuse(f"the activation '{name}'")


def _normalized(n: Layer, weight: np.ndarray, shift: np.ndarray, four: List[np.ndarray]) -> Tuple[Any, Any]:
    """Weight and bias with the normalization in them: scale (y - mean) / (deviation + 1e-6) + bias."""
    scale, mean, variance = four
    factor = scale / (np.sqrt(variance) + np.float32(1e-6))
    return weight * factor.reshape([-1] + [1] * (weight.ndim - 1)), shift - mean * factor


def _convolutional(n: Layer, x: RelayExpr) -> RelayExpr:
    filters, size, groups = n.i("filters", 1), n.i("size", 1), n.i("groups", 1)
    channels = sizes(x)[1]
    bias = n.net.take(filters)
    statistics = [n.net.take(filters) for _ in range(3)] if n.i("batch_normalize") else None
    weight = n.net.take(filters, channels // groups, size, size)
    if statistics is not None:
        weight, bias = _normalized(n, weight, bias, statistics)
    pad = size // 2 if n.i("pad") else n.i("padding")
    made = call_op("nn.conv2d", [x, n.net.param(f"layer{n.number}_weight", weight)], strides=[n.i("stride", 1)] * 2,
                   padding=[pad] * 4, dilation=[n.i("dilation", 1)] * 2, groups=groups, channels=filters,
                   kernel_size=[size, size])  # fmt: skip
    made = op("nn.bias_add", made, n.net.param(f"layer{n.number}_bias", bias), axis=1)
    return _activated(n, made, "logistic")


def _connected(n: Layer, x: RelayExpr) -> RelayExpr:
    count = int(np.prod(sizes(x)[1:], dtype=int))
    outputs = n.i("output", 1)
    bias, weight = n.net.take(outputs), n.net.take(outputs, count)
    if n.i("batch_normalize"):
        weight, bias = _normalized(n, weight, bias, [n.net.take(outputs) for _ in range(3)])
    flat = op("reshape", x, newshape=[sizes(x)[0], count])
    made = op("nn.dense", flat, n.net.param(f"layer{n.number}_weight", weight))
    made = op("nn.bias_add", made, n.net.param(f"layer{n.number}_bias", bias), axis=1)
    return _activated(n, made, "logistic")


def _maxpool(n: Layer, x: RelayExpr) -> RelayExpr:
    stride = n.i("stride", 1)
    size = n.i("size", stride)
    pad = n.i("padding", size - 1)
    before, behind = pad // 2, pad - pad // 2
    return op("nn.max_pool2d", x, pool_size=[size, size], strides=[stride, stride],
              padding=[before, before, behind, behind])  # fmt: skip


def _avgpool(n: Layer, x: RelayExpr) -> RelayExpr:
    return op("nn.adaptive_avg_pool2d", x, output_size=[1, 1])


def _route(n: Layer, x: RelayExpr) -> RelayExpr:
    parts = [n.net.layer(i, n.number) for i in n.ints("layers")]
    groups = n.i("groups", 1)
    if groups > 1:
        parts = [list(call_op("split", [p], indices_or_sections=groups, axis=1))[n.i("group_id")] for p in parts]
    return parts[0] if len(parts) == 1 else call_op("concatenate", [TupleExpr(parts)], axis=1)


def _shortcut(n: Layer, x: RelayExpr) -> RelayExpr:
    other = n.net.layer(n.i("from"), n.number)
    if sizes(other) != sizes(x):
        return refuse(f"layers of different sizes, {sizes(other)} and {sizes(x)}")
    return _activated(n, op("add", x, other), "linear")


def _upsample(n: Layer, x: RelayExpr) -> RelayExpr:
    stride = n.i("stride", 2)
    return op("nn.upsampling", x, scale_h=float(stride), scale_w=float(stride), method="nearest_neighbor")


def _reorg(n: Layer, x: RelayExpr) -> RelayExpr:
    return op("vision.yolo_reorg", x, stride=n.i("stride", 1)) if not n.i("reverse") else refuse("reverse=1")


def _softmax(n: Layer, x: RelayExpr) -> RelayExpr:
    if n.i("groups", 1) != 1 or float(n.options.get("temperature", 1)) != 1:
        return refuse("groups or a temperature")
    return op("nn.softmax", op("reshape", x, newshape=[sizes(x)[0], -1]), axis=1)


def _boxes(n: Layer, x: RelayExpr) -> RelayExpr:
    """For each box its place (squashed), size, certainty (squashed) and classes: squashed in "yolo", softmax in
    "region"."""
    yolo = n.kind == "yolo"
    count = len(n.ints("mask")) or n.i("num", 1)
    classes, (batch, channels, h, w) = n.i("classes", 20), sizes(x)
    if channels != count * (5 + classes):
        return refuse(f"{channels} channels for {count} boxes of {classes} classes")
    if not yolo and (n.i("background") or n.i("coords", 4) != 4 or "tree" in n.options or not n.i("softmax")):
        return refuse("a form with a background, a tree, other coordinates, or without softmax")
    parts = call_op("split", [op("reshape", x, newshape=[batch, count, 5 + classes, h, w])],
                    indices_or_sections=[2, 4, 5], axis=2, mode="indices")  # fmt: skip
    place, size, certainty, kinds = (parts[i] for i in range(4))
    kinds = op("sigmoid", kinds) if yolo else op("nn.softmax", kinds, axis=2)
    made = [op("sigmoid", place), size, op("sigmoid", certainty), kinds]
    made_all = op("reshape", call_op("concatenate", [TupleExpr(made)], axis=2), newshape=[batch, channels, h, w])
    n.net.results.append(made_all)
    return made_all


ROWS: Dict[str, Callable[[Layer, RelayExpr], RelayExpr]] = {
    "avgpool": _avgpool, "connected": _connected, "conv": _convolutional, "convolutional": _convolutional,
    "cost": lambda n, x: x, "dropout": lambda n, x: x, "maxpool": _maxpool, "region": _boxes, "reorg": _reorg,
    "route": _route, "shortcut": _shortcut, "softmax": _softmax, "upsample": _upsample, "yolo": _boxes,
}  # fmt: skip


def _sections(text: str) -> List[Section]:
    found: List[Section] = []
    for k, line in enumerate(text.splitlines()):
        line = line.split("#")[0].split(";")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            found.append((line[1:-1].strip().lower(), {}))
        elif "=" in line and found:
            name, value = line.split("=", 1)
            found[-1][1][name.strip()] = value.strip()
        elif line:
            raise error.ArgumentError(f"from_darknet: line {k + 1} is no option of a layer: {line[:60]!r}")
    if not found or found[0][0] not in ("net", "network"):
        raise error.ArgumentError("from_darknet: the text does not begin with [net]")
    return found


def _numbers(data: bytes) -> np.ndarray:
    """What lies behind the version and the count of images, which is of 8 bytes from version 0.2 on."""
    if len(data) < 12:
        raise error.ArgumentError("from_darknet: the file of weights has no header")
    major, minor, _ = struct.unpack_from("<iii", data)
    if major >= 1000 or minor >= 1000:
        raise error.UnsupportedError("from_darknet: weights that are transposed, of an old version")
    start = 12 + (8 if major * 10 + minor >= 2 else 4)
    rest = memoryview(data)[start:] if len(data) >= start else b""
    if len(rest) % 4:
        raise error.ArgumentError("from_darknet: the file of weights ends within a number")
    return np.frombuffer(rest, "<f4")


def from_darknet(
    net: Any, shape: Optional[Any] = None, dtype: str = "float32", *, weights: Any = None
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """A module and its parameters from a network of Darknet.

    net is the path of the text, weights that of the numbers (without it, the one that is called the same).  shape says
    other sizes of the input, "data", than the text: (1, 3, 416, 416).  The outputs are those of the layers "yolo" and
    "region", or else that of the last layer."""
    if not isinstance(net, (str, os.PathLike)):
        raise error.ArgumentError(f"from_darknet takes the path of a .cfg file, not a {type(net).__name__}")
    if dtype != "float32":
        raise error.UnsupportedError(f"from_darknet: dtype {dtype}; Darknet computes in float32")
    path = pathlib.Path(net)
    try:
        text = path.read_text(errors="replace")
        data = pathlib.Path(weights if weights is not None else path.with_suffix(".weights")).read_bytes()
    except OSError as e:
        raise error.IOError(f"from_darknet: the network cannot be read: {e}") from None
    sections = _sections(text)
    missing = sorted({kind for kind, _ in sections[1:] if kind not in ROWS})
    if missing:
        raise error.UnsupportedError(f"from_darknet: layers that are not supported: {', '.join(missing)}")
    try:
        return _convert(sections, shape, _numbers(data))
    except (LookupError, TypeError, ValueError) as e:
        raise error.ArgumentError(f"from_darknet: an option is not what it should be: {type(e).__name__}: {e}") from e


def _convert(sections: List[Section], shape: Any, numbers: np.ndarray) -> Tuple[IRModule, Dict[str, NDArray]]:
    whole = Net(numbers)
    first = Layer(whole, -1, "net", sections[0][1])
    told = [1, first.i("channels", 3), first.i("height"), first.i("width")]
    data = var("data", TensorType([int(d) for d in (shape or told)], "float32"))
    x: RelayExpr = data
    for number, (kind, options) in enumerate(sections[1:]):
        try:
            x = ROWS[kind](Layer(whole, number, kind, options), x)
        except error.LatheError as e:
            text = e.message if e.message.startswith("from_darknet") else f"from_darknet: {e.message}"
            raise type(e)(f"{text} (layer {number}, [{kind}])") from None
        whole.made.append(x)
    if whole.at != numbers.size:
        raise error.ArgumentError(
            f"from_darknet: the network has {whole.at} weights, the file {numbers.size}; are they of one another?"
        )
    outs = whole.results or [x]
    body = outs[0] if len(outs) == 1 else TupleExpr(outs)
    return IRModule.from_expr(Function([data, *whole.inputs], body)), whole.params


__all__ = ["ACTIVATIONS", "ROWS", "from_darknet"]
