"""Operators relay.qnn.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "abs", "add", "avg_pool2d", "batch_matmul", "concatenate", "contrib_dense_pack", "contrib_lookup",
    "contrib_multiply_shift", "contrib_reciprocal", "contrib_rsqrt", "conv2d", "conv2d_transpose", "dense",
    "dequantize", "erf", "exp", "hardswish", "leaky_relu", "log", "mul", "quantize", "requantize", "rsqrt",
    "sigmoid", "simulated_dequantize", "simulated_quantize", "softmax", "sqrt", "subtract", "tanh",
]

def quantize(
    data: Value,
    output_scale: Value,
    output_zero_point: Value,
    axis: int = -1,
    out_dtype: str = 'int8',
) -> RelayExpr:
    """real numbers as integers: round(data / scale) + zero point within the range of out_dtype, halves to even"""

def dequantize(
    data: Value,
    input_scale: Value,
    input_zero_point: Value,
    axis: int = -1,
    out_dtype: str = 'float32',
) -> RelayExpr:
    """the real numbers that integers stand for: (data - zero point) * scale"""

def simulated_quantize(
    data: Value,
    output_scale: Value,
    output_zero_point: Value,
    axis: int = -1,
    out_dtype: str = 'int8',
) -> RelayExpr:
    """what qnn.quantize gives, kept in data's float dtype"""

def simulated_dequantize(
    data: Value,
    input_scale: Value,
    input_zero_point: Value,
    axis: int = -1,
    in_dtype: str = 'int8',
) -> RelayExpr:
    """what qnn.dequantize gives, of integers kept in a float dtype"""

def requantize(
    data: Value,
    input_scale: Value,
    input_zero_point: Value,
    output_scale: Value,
    output_zero_point: Value,
    axis: int = -1,
    rounding: str = 'None',
    compute_dtype: str = 'None',
    out_dtype: str = 'int8',
) -> RelayExpr:
    """integers of one scale and zero point as integers of another"""

def contrib_multiply_shift(
    data: Value,
    multiplier: Value,
    shift: Value,
    rounding: str = 'UPWARD',
    saturate: bool = False,
    least: int = 1,
) -> RelayExpr:
    """round(data * multiplier / 2^shift) in int64, as int32; shift is from 1 to 62"""

def contrib_reciprocal(data: Value, integer_bits: int = 12) -> RelayExpr:
    """1 / data in fixed point: a multiplier and a shift for qnn.contrib_multiply_shift"""

def contrib_rsqrt(data: Value) -> RelayExpr:
    """1 / sqrt(data) in fixed point: a multiplier and a shift for qnn.contrib_multiply_shift; of less than 1: of 1"""

def contrib_lookup(data: Value, table: Value) -> RelayExpr:
    """table[data - least value of its dtype]: a function of a byte by its 256 results"""

def conv2d(
    data: Value,
    kernel: Value,
    input_zero_point: Value,
    kernel_zero_point: Value,
    input_scale: Value,
    kernel_scale: Value,
    kernel_size: Optional[Sizes] = None,
    channels: int = 0,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    groups: int = 1,
    data_layout: str = 'NCHW',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: str = 'int32',
) -> RelayExpr:
    """convolution of quantized tensors: int32 sums of (data - zero point) * (kernel - zero point)"""

def conv2d_transpose(
    data: Value,
    weight: Value,
    input_zero_point: Value,
    kernel_zero_point: Value,
    input_scale: Value,
    kernel_scale: Value,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    groups: int = 1,
    data_layout: str = 'NCHW',
    kernel_layout: str = 'IOHW',
    out_layout: str = '',
    output_padding: Sizes = [0, 0],
    out_dtype: str = 'int32',
) -> RelayExpr:
    """transposed convolution of quantized tensors, summed in int32"""

def dense(
    data: Value,
    weight: Value,
    input_zero_point: Value,
    kernel_zero_point: Value,
    input_scale: Value,
    kernel_scale: Value,
    units: int = 0,
    out_dtype: str = 'int32',
) -> RelayExpr:
    """data times the transpose of weight (units, in), both quantized, summed in int32"""

def contrib_dense_pack(
    data: Value,
    weight: Value,
    input_zero_point: Value,
    kernel_zero_point: Value,
    input_scale: Value,
    kernel_scale: Value,
    kernel_layout: str = 'NC',
    units: int = 0,
    out_dtype: str = 'int32',
) -> RelayExpr:
    """qnn.dense over a weight whose rows come in blocks: (units/8, in, 8) for NC8n"""

def batch_matmul(
    x: Value,
    y: Value,
    x_zero_point: Value,
    y_zero_point: Value,
    x_scale: Value,
    y_scale: Value,
    out_dtype: str = 'int32',
) -> RelayExpr:
    """(b, n, k) times the transpose of (b, m, k), both quantized, summed in int32"""

def add(
    lhs: Value,
    rhs: Value,
    lhs_scale: Value,
    lhs_zero_point: Value,
    rhs_scale: Value,
    rhs_zero_point: Value,
    output_scale: Value,
    output_zero_point: Value,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> RelayExpr:
    """sum of two quantized tensors, halves up; shapes broadcast"""

def subtract(
    lhs: Value,
    rhs: Value,
    lhs_scale: Value,
    lhs_zero_point: Value,
    rhs_scale: Value,
    rhs_zero_point: Value,
    output_scale: Value,
    output_zero_point: Value,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> RelayExpr:
    """difference of two quantized tensors, halves up; shapes broadcast"""

def mul(
    lhs: Value,
    rhs: Value,
    lhs_scale: Value,
    lhs_zero_point: Value,
    rhs_scale: Value,
    rhs_zero_point: Value,
    output_scale: Value,
    output_zero_point: Value,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> RelayExpr:
    """product of two quantized tensors, halves up; shapes broadcast"""

def concatenate(
    data: Any,
    input_scales: Any,
    input_zero_points: Any,
    output_scale: Any,
    output_zero_point: Any,
    axis: int,
) -> RelayExpr:
    """quantized tensors one behind the other, each requantized to the output's scale"""

def avg_pool2d(
    data: Value,
    input_scale: Value,
    input_zero_point: Value,
    output_scale: Value,
    output_zero_point: Value,
    pool_size: Sizes = [1, 1],
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = 'NHWC',
    out_layout: str = '',
) -> RelayExpr:
    """mean of each window of a quantized tensor"""

def sigmoid(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """1 / (1 + exp(-x)) of a quantized tensor; of 8 bits by table"""

def tanh(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """hyperbolic tangent of a quantized tensor; of 8 bits by table"""

def exp(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """e to the power of each element of a quantized tensor; of 8 bits by table"""

def sqrt(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """square root of a quantized tensor; of 8 bits by table"""

def rsqrt(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """1 / square root of a quantized tensor; of 8 bits by table"""

def erf(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """error function of a quantized tensor; of 8 bits by table"""

def abs(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """absolute value of a quantized tensor; of 8 bits by table"""

def log(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """natural logarithm of a quantized tensor; of 8 bits by table"""

def leaky_relu(
    x: Any,
    alpha: float,
    input_scale: Any,
    input_zero_point: Any,
    output_scale: Any,
    output_zero_point: Any,
) -> RelayExpr:
    """x where it is positive, alpha * x elsewhere, of a quantized tensor"""

def hardswish(x: Value, scale: Value, zero_point: Value, output_scale: Value, output_zero_point: Value) -> RelayExpr:
    """x * relu6(x + 3) / 6 of a quantized tensor"""

def softmax(
    x: Value,
    scale: Value,
    zero_point: Value,
    output_scale: Value,
    output_zero_point: Value,
    axis: int = -1,
) -> RelayExpr:
    """softmax of a quantized tensor; of 8 bits in integers"""
