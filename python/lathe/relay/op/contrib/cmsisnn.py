"""CMSIS-NN: layers of int8 as calls of Arm's kernels, in the C of a program ahead of time.

Each row of the table has a pattern and a reader.  The reader looks at a match, and answers None where the kernel would
compute something else: other layouts or dtypes, zero points of weights, another rounding.  What it answers is the body
of a C function over its data (in0, in1), the constants that the reader names, and out.  docs/byoc.md tells how the
program is built."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ....runtime.packed import register_func
from ...dataflow_pattern import DFPattern, is_constant, is_op, is_tuple_get_item, wildcard
from ...expr import Constant
from .partition import partition_for
from .register import register_pattern_table

COMPILER = "cmsis-nn"
BLOCK_MVE = 124  # channels that a depthwise convolution with vectors works on at a time


class Layer(NamedTuple):
    """What a match becomes."""

    constants: Dict[str, np.ndarray]
    body: str  # statements; the last sets status
    scratch: int = 0  # bytes that the kernel may want, on any processor


Reader = Callable[[Any], Optional[Layer]]


class _Other(Exception):
    """The match is not what the kernel computes."""


def _need(condition: Any) -> None:
    if not condition:
        raise _Other


def _reader(read: Callable[[Any], Layer]) -> Reader:
    def answer(e: Any) -> Optional[Layer]:
        try:
            return read(e)
        except _Other:
            return None

    return answer


# ---- reading a match


def _shape(e: Any) -> Tuple[int, ...]:
    sizes = tuple(getattr(d, "value", d) for d in e.checked_type.shape)
    _need(all(isinstance(d, int) and d > 0 for d in sizes))
    return sizes


def _data(e: Any, rank: Optional[int] = None) -> Tuple[int, ...]:
    """The sizes of an operand that is int8 and no constant."""
    _need(not isinstance(e, Constant) and e.checked_type.dtype == "int8")
    sizes = _shape(e)
    _need(rank is None or len(sizes) == rank)
    return sizes


def _array(e: Any) -> Any:
    _need(isinstance(e, Constant))
    return e.data.numpy()


def _number(e: Any) -> int:
    values = _array(e)
    _need(values.size == 1)
    return int(values.reshape(())[()])


class _Scaled(NamedTuple):
    """clip(round(sum * multiplier / 2^(31 - shift))) + zero, as int8."""

    sum: Any
    multiplier: np.ndarray
    shift: np.ndarray
    zero: int
    low: int
    high: int


def _factor(e: Any, roundings: Sequence[str] = ("DOUBLE",)) -> Tuple[Any, np.ndarray, np.ndarray]:
    """Operand, multipliers and shifts to the left of a rescaling."""
    _need(e.attrs.rounding in roundings)
    m, shift = (_array(a).astype(np.int64).reshape(-1) for a in e.args[1:])
    _need((m >= 0).all() and (shift >= 31).all() and (shift <= 62).all())
    return e.args[0], m, 31 - shift


def _scaled(e: Any, roundings: Sequence[str] = ("DOUBLE",)) -> _Scaled:
    _need(e.attrs.dtype == "int8")
    plus = e.args[0]
    clip = plus.args[0]
    zero = _number(plus.args[1])
    total, m, shift = _factor(clip.args[0], roundings)
    low, high = int(clip.attrs.a_min) + zero, int(clip.attrs.a_max) + zero
    _need(-128 <= low <= high <= 127)
    return _Scaled(total, m, shift, zero, low, high)


def _anchor(total: Any, name: str, channels: int) -> Tuple[Any, np.ndarray]:
    """The convolution or product, and its bias."""
    if total.op.name == name:
        return total, np.zeros(channels, np.int32)
    bias = _array(total.args[1])
    _need(bias.size == channels and (bias.ndim == 0 or bias.shape[-1] == channels))
    return total.args[0], bias.astype(np.int32).reshape(channels)


def _zero_points(e: Any) -> int:
    """The data's; the weights' must be 0."""
    _need((_array(e.args[3]) == 0).all())
    return _number(e.args[2])


def _c(name: str, value: str) -> str:
    return f"  const cmsis_nn_{name} = {{{value}}};\n"


def _dims(name: str, *sizes: int) -> str:
    return _c(f"dims {name}", ", ".join(map(str, sizes)))


# ---- convolutions and products


def _run(function: str) -> str:
    operands = "&in, in0, &filter, weight, &bias_dims, bias, &result, out"
    return f"  int32_t status = {function}(&context, &params, &quant, {operands});\n"


@_reader
def _conv(e: Any) -> Layer:
    s = _scaled(e)
    conv, bias = _anchor(s.sum, "qnn.conv2d", _shape(e)[3] if len(_shape(e)) == 4 else 0)
    a = conv.attrs
    n, h, w, c = _data(conv.args[0], 4)
    _, oh, ow, oc = _shape(e)
    weight = _array(conv.args[1])
    _need(a.data_layout == "NHWC" and a.out_layout in ("", "NHWC", None) and weight.dtype == np.int8)
    depthwise = a.groups == c and a.kernel_layout == "IHWO" and weight.shape[0] == 1
    _need(depthwise or (a.groups == 1 and a.kernel_layout == "OHWI"))
    kh, kw = weight.shape[1:3]
    pads = list(a.padding)
    top, left = (pads[0], pads[1 % len(pads)])
    tiles = [(a.strides[1], a.strides[0]), (left, top), (a.dilation[1], a.dilation[0])]
    zero = _zero_points(conv)
    numbers = [str(-zero), str(s.zero), *([str(oc // c)] if depthwise else [])]
    numbers += [f"{{{x}, {y}}}" for x, y in [*tiles, (s.low, s.high)]]
    kind, wrapper = ("dw_", "arm_depthwise_conv_wrapper_s8") if depthwise else ("", "arm_convolve_wrapper_s8")
    text = _c(f"{kind}conv_params params", ", ".join(numbers))
    text += _c("per_channel_quant_params quant", "(int32_t *)(uintptr_t)multiplier, (int32_t *)(uintptr_t)shift")
    text += _dims("in", n, h, w, c) + _dims("filter", 1 if depthwise else oc, kh, kw, oc if depthwise else c)
    text += _dims("bias_dims", 1, 1, 1, oc) + _dims("result", n, oh, ow, oc)
    text += f"  NEED_SCRATCH({wrapper}_get_buffer_size(&params, &in, &filter, &result));\n"
    text += _run(wrapper)
    window = kh * kw * c
    scratch = max(4 * (window + 3), 4 * (window + 15))
    if depthwise:
        scratch = kh * kw * max(2 * c, 4 * BLOCK_MVE, 4 + oc) + 64
    spread = lambda v: np.resize(v, oc).astype(np.int32)  # noqa: E731
    _need(s.multiplier.size in (1, oc) and s.shift.size in (1, oc))
    constants = {"weight": weight, "bias": bias, "multiplier": spread(s.multiplier), "shift": spread(s.shift)}
    return Layer(constants, text, scratch)


def _dense(e: Any, roundings: Sequence[str]) -> Layer:
    s = _scaled(e, roundings)
    dense, bias = _anchor(s.sum, "qnn.dense", _shape(e)[-1])
    data, weight = _data(dense.args[0]), _array(dense.args[1])
    units, depth = weight.shape
    _need(weight.dtype == np.int8 and s.multiplier.size == 1 and s.shift.size == 1)
    zero, rows = _zero_points(dense), math.prod(data) // depth
    text = _c("fc_params params", f"{-zero}, 0, {s.zero}, {{{s.low}, {s.high}}}")
    text += _c("per_tensor_quant_params quant", f"{s.multiplier[0]}, {s.shift[0]}")
    text += _dims("in", rows, 1, 1, depth) + _dims("filter", depth, 1, 1, units)
    text += _dims("bias_dims", 1, 1, 1, units) + _dims("result", rows, 1, 1, units)
    text += "  NEED_SCRATCH(arm_fully_connected_s8_get_buffer_size(&filter));\n"
    text += "#if defined(ARM_MATH_MVEI)\n"
    text += f"  if (arm_vector_sum_s8(context.buf, {depth}, {units}, weight, {-zero}, 0, bias)) return -3;\n"
    text += "#endif\n"
    text += _run("arm_fully_connected_s8")
    return Layer({"weight": weight, "bias": bias}, text, 4 * units)


_exact_dense = _reader(lambda e: _dense(e, ("DOUBLE",)))
_near_dense = _reader(lambda e: _dense(e, ("DOUBLE", "UPWARD")))

# ---- sums and products of two tensors


def _two(e: Any, a: Any, b: Any) -> int:
    """Elements of two operands that are as large as the result."""
    _need(_data(a) == _data(b) == _shape(e))
    return math.prod(_shape(e))


def _centred(e: Any) -> Tuple[Any, int]:
    """x - zero in int32: x and -zero."""
    return e.args[0].args[0], -_number(e.args[1])


@_reader
def _add(e: Any) -> Layer:
    s = _scaled(e)
    (a, ma, sa), (b, mb, sb) = (_factor(side) for side in s.sum.args)
    (xa, oa), (xb, ob) = _centred(a.args[0]), _centred(b.args[0])
    left = _number(a.args[1])
    _need(left == _number(b.args[1]) and ma.size == mb.size == s.multiplier.size == 1)
    sides = [oa, ma[0], sa[0], ob, mb[0], sb[0], left]
    ends = [s.zero, s.multiplier[0], s.shift[0], s.low, s.high, _two(e, xa, xb)]
    return Layer({}, f"  int32_t status = arm_elementwise_add_s8(in0, in1, {_list(sides)}, out, {_list(ends)});\n")


@_reader
def _mul(e: Any) -> Layer:
    s = _scaled(e)
    (xa, oa), (xb, ob) = (_centred(side) for side in s.sum.args)
    _need(s.multiplier.size == 1)
    ends = [s.zero, s.multiplier[0], s.shift[0], s.low, s.high, _two(e, xa, xb)]
    return Layer({}, f"  int32_t status = arm_elementwise_mul_s8(in0, in1, {oa}, {ob}, out, {_list(ends)});\n")


def _list(values: Sequence[Any]) -> str:
    return ", ".join(str(int(v)) for v in values)


# ---- pools


def _pool(pool: Any, x: Any, out: Tuple[int, ...], low: int, high: int, name: str) -> str:
    a = pool.attrs
    n, h, w, c = _data(x, 4)
    pads = list(a.padding)
    _need(a.layout == "NHWC" and not a.get("ceil_mode", False) and set(a.dilation) == {1})
    _need(-128 <= low <= high <= 127)
    numbers = f"{{{a.strides[1]}, {a.strides[0]}}}, {{{pads[1 % len(pads)]}, {pads[0]}}}, {{{low}, {high}}}"
    text = _c("pool_params params", numbers) + _dims("in", n, h, w, c)
    text += _dims("filter", 1, a.pool_size[0], a.pool_size[1], 1) + _dims("result", n, *out[1:])
    need = f"arm_avgpool_s8_get_buffer_size({out[2]}, {c})" if name == "arm_avgpool_s8" else "0"
    text += f"  NEED_SCRATCH({need});\n"
    return text + f"  int32_t status = {name}(&context, &params, &in, in0, &filter, &result, out);\n"


@_reader
def _max_pool(e: Any) -> Layer:
    clip = e if e.op.name == "clip" else None
    pool = clip.args[0] if clip else e
    low, high = (int(clip.attrs.a_min), int(clip.attrs.a_max)) if clip else (-128, 127)
    return Layer({}, _pool(pool, pool.args[0], _shape(e), low, high, "arm_max_pool_s8"), 8)


def _covered(size: int, out: int, kernel: int, stride: int, before: int) -> np.ndarray:
    """How many elements of a row each window has inside."""
    first = np.arange(out) * stride - before
    return np.minimum(first + kernel, size) - np.maximum(first, 0)


@_reader
def _avg_pool(e: Any) -> Layer:
    """trunc((sum > 0 ? sum + count / 2 : sum - count / 2) / count), with the elements that lie inside as the count."""
    clip = e.args[0]
    divide = clip.args[0]
    _, plus, minus = divide.args[0].args
    pool = plus.args[0]
    scaled = pool.args[0]
    x = scaled.args[0].args[0]
    a, (_, oh, ow, _), (_, h, w, c) = pool.attrs, _shape(e), _data(x, 4)
    (kh, kw), pads = a.pool_size, list(a.padding)
    _need(e.attrs.dtype == "int8" and minus.args[0] == pool and a.count_include_pad)
    _need(_number(scaled.args[1]) == kh * kw)
    rows = _covered(h, oh, kh, a.strides[0], pads[0])
    columns = _covered(w, ow, kw, a.strides[1], pads[1 % len(pads)])
    count = (rows[:, None] * columns[None, :])[None, :, :, None]
    halves = [_array(side.args[1]) for side in (plus, minus)]
    _need((np.broadcast_to(_array(divide.args[1]), count.shape) == count).all())
    _need(all((np.broadcast_to(half, count.shape) == count // 2).all() for half in halves))
    text = _pool(pool, x, _shape(e), int(clip.attrs.a_min), int(clip.attrs.a_max), "arm_avgpool_s8")
    return Layer({}, text, 4 * c)


# ---- softmax


def _high_product(a: Any, b: Any) -> Any:
    """Twice the product's upper half, halves rounded upwards."""
    return (a * b + (1 << 30)) >> 31


def _rounded_shift(v: Any, n: int) -> Any:
    """v / 2^n, halves away from zero."""
    return np.where(v >= 0, (v + (1 << (n - 1))) >> n, -((-v + (1 << (n - 1))) >> n))


def _exp_of_negative(v: Any) -> Any:
    """exp(v / 2^26) * 2^31 for v <= 0, to the bit: a polynomial for what is left of quarters, times powers of e."""
    quarter = 1 << 24
    part = (v & (quarter - 1)) - quarter
    rest = part - v
    x = (part << 5) + (1 << 28)
    x2 = _high_product(x, x)
    cubes = _rounded_shift(_high_product(x2, x2), 2) + _high_product(x2, x)
    near = 1895147668  # exp(-1/8)
    result = near + _high_product(x + _rounded_shift(_high_product(cubes, 715827883) + x2, 1), near)
    for i, power in enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)):
        result = np.where(rest >> (24 + i) & 1, _high_product(result, power), result)
    return np.where(v == 0, (1 << 31) - 1, result)


def _exponents(table: np.ndarray) -> Tuple[int, int, int]:
    """Multiplier, shift and least difference with which CMSIS-NN computes a table of exp(-scale * i)."""
    _need(table.size >= 2 and table[0] == (1 << 31) - 1 and table[1] > 0)
    i = int(np.argmin(np.abs(table / 2.0**31 - 0.37)))
    _need(i > 0)
    fraction, shift = math.frexp(-math.log(table[i] / 2.0**31) / i * (1 << 26))
    guess, steps = round(fraction * (1 << 31)), np.arange(table.size, dtype=np.int64)
    _need(0 <= shift < 31)
    least = (31 << 26) >> shift
    for off in sorted(range(-512, 513), key=abs):
        value = _high_product(-steps << shift, guess + off)
        if 1 << 30 <= guess + off < 1 << 31 and (np.where(steps > least, 0, _exp_of_negative(value)) == table).all():
            return guess + off, shift, -least
    raise _Other


@_reader
def _softmax(e: Any) -> Layer:
    clip = e.args[0].args[0]
    rescaled = clip.args[0]
    first, inverse, right = rescaled.args
    differences = first.args[1]
    peak = differences.args[0]
    x = differences.args[1].args[0]
    total = inverse.tuple_value.args[0]
    table, shifted = (_array(t.args[0]).astype(np.int64) for t in (first, total.args[0]))
    sizes = _data(x)
    _need(e.attrs.dtype == "int8" and rescaled.attrs.rounding == "DOUBLE" and _number(right.args[1]) == 23)
    _need((clip.attrs.a_min, clip.attrs.a_max, _number(e.args[0].args[1])) == (0, 255, -128))
    for reduced in (peak, total):
        axes = reduced.attrs.axis
        axes = [axes] if isinstance(axes, int) else list(axes or ())
        _need([int(d) % len(sizes) for d in axes] == [len(sizes) - 1] and reduced.attrs.keepdims)
    _need((_rounded_shift(table, 12) == shifted).all())
    m, shift, least = _exponents(table)
    rows = math.prod(sizes[:-1])
    text = f"  arm_softmax_s8(in0, {rows}, {sizes[-1]}, {m}, {shift}, {least}, out);\n  int32_t status = 0;\n"
    return Layer({}, text)


# ---- the table


def _to_int8(total: DFPattern) -> DFPattern:
    rescaled = is_op("qnn.contrib_multiply_shift")(total, is_constant(), is_constant())
    return is_op("cast")(is_op("add")(is_op("clip")(rescaled), is_constant()))


def _with_bias(name: str, operands: int) -> DFPattern:
    anchor = is_op(name)(wildcard(), *[is_constant() for _ in range(operands - 1)])
    return is_op("add")(anchor, is_constant()) | anchor


def _rows() -> Dict[str, Tuple[DFPattern, Reader]]:
    centre = lambda: is_op("subtract")(is_op("cast")(wildcard()), is_constant())  # noqa: E731
    rescale = is_op("qnn.contrib_multiply_shift")
    side = lambda: rescale(is_op("left_shift")(centre(), is_constant()), is_constant(), is_constant())  # noqa: E731
    max_pool = is_op("nn.max_pool2d")(wildcard())
    pooled = is_op("nn.avg_pool2d")(is_op("multiply")(is_op("cast")(wildcard()), is_constant()))
    nearer = is_op("where")(
        is_op("greater")(pooled, is_constant()), is_op("add")(pooled, is_constant()),
        is_op("subtract")(pooled, is_constant()),
    )  # fmt: skip
    mean = is_op("cast")(is_op("clip")(is_op("trunc_divide")(nearer, is_constant())))
    wide = is_op("cast")(wildcard())
    differences = is_op("subtract")(is_op("max")(wide), wide)
    powers = lambda: is_op("take")(is_constant(), differences)  # noqa: E731
    inverse = is_op("qnn.contrib_reciprocal")(is_op("sum")(powers()))
    share = rescale(powers(), is_tuple_get_item(inverse, 0), is_op("add")(is_tuple_get_item(inverse, 1), is_constant()))
    return {
        "qnn_conv2d": (_to_int8(_with_bias("qnn.conv2d", 6)), _conv),
        "qnn_fully_connected": (_to_int8(_with_bias("qnn.dense", 6)), _exact_dense),
        "qnn_add": (_to_int8(is_op("add")(side(), side())), _add),
        "qnn_mul": (_to_int8(is_op("multiply")(centre(), centre())), _mul),
        "qnn_max_pool2d": (is_op("clip")(max_pool) | max_pool, _max_pool),
        "qnn_avg_pool2d": (mean, _avg_pool),
        "qnn_softmax": (is_op("cast")(is_op("add")(is_op("clip")(share), is_constant())), _softmax),
    }


def pattern_table(exact: bool = True) -> List[Any]:
    """What CMSIS-NN takes; where it need not be exact, dense layers that may come out one higher or lower as well."""
    rows = _rows()
    if not exact:
        rows["qnn_fully_connected"] = (rows["qnn_fully_connected"][0], _near_dense)
    made = []
    for name, (pattern, read) in rows.items():
        made.append((f"{COMPILER}.{name}", pattern, lambda e, read=read: read(e) is not None))
    return made


register_pattern_table(COMPILER, pattern_table)


def partition_for_cmsisnn(
    mod: Any, params: Optional[Dict[str, Any]] = None, mod_name: str = "default", exact: bool = True, **choice: Any
) -> Any:
    """The model with the layers that CMSIS-NN has as functions of it, one each, so that what lies between them has its
    place in the program's workspace.  exact: only what comes out the same to the bit."""
    register_pattern_table(COMPILER, lambda: pattern_table(exact))
    try:
        return partition_for(COMPILER, mod, params, mod_name, merge=False, **choice)
    finally:
        register_pattern_table(COMPILER, pattern_table)


_HEAD = """#include <stdint.h>

#include "arm_nnfunctions.h"
#ifndef NEED_SCRATCH
/* The kernel's own memory, or status -4: this CMSIS-NN wants more than was foreseen. */
#define NEED_SCRATCH(bytes) \\
  const cmsis_nn_context context = {scratch, (bytes)}; \\
  if (context.size > (int32_t)sizeof scratch) return -4
#endif
"""


def _generate(func: Any) -> Any:
    from ...backend.contrib import CSource, Graph

    g = Graph(func)
    kernel = g.kernels[0]
    read = _near_dense if kernel.name.endswith(".qnn_fully_connected") else _rows()[kernel.name.split(".", 1)[1]][1]
    layer: Any = read(kernel.calls[-1])
    names = {"int8": "int8_t", "int32": "int32_t"}
    data = [f"const int8_t *in{i}" for i in range(len(g.inputs))]
    data += [f"const {names[v.dtype.name]} *{k}" for k, v in layer.constants.items()]
    one = "  const int8_t *in1 = in0;\n" if "in1" in layer.body and len(g.inputs) == 1 else ""
    memory = f"  int64_t scratch[{layer.scratch // 8 + 1}];\n" if layer.scratch else ""
    head = f"int32_t {g.symbol}({', '.join(data)}, int8_t *out)\n"
    body = f"{{\n{one}{memory}{layer.body}  return status;\n}}\n"
    return CSource(_HEAD + head + body, {f"{g.symbol}_{k}": v for k, v in layer.constants.items()})


register_func(f"relay.ext.{COMPILER}", _generate, override=True)
__all__ = ["partition_for_cmsisnn", "pattern_table"]
