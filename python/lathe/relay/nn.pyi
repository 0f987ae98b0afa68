"""Operators relay.nn.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "attention", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_flatten", "batch_matmul", "batch_norm", "batch_to_space_nd", "bias_add", "col2im", "contrib_columns",
    "contrib_conv2d_NCHWc", "contrib_conv2d_winograd_NCHWc", "contrib_conv2d_winograd_weight_transform",
    "contrib_conv2d_winograd_without_weight_transform", "contrib_dense_nbits", "contrib_dense_pack",
    "contrib_depthwise_conv2d_NCHWc", "contrib_recurrent", "conv1d", "conv1d_transpose", "conv2d",
    "conv2d_transpose", "conv3d", "conv3d_transpose", "correlation", "deformable_conv2d", "dense", "depth_to_space",
    "dropout", "global_avg_pool2d", "global_max_pool2d", "group_norm", "gru", "im2col", "instance_norm",
    "l2_normalize", "layer_norm", "leaky_relu", "log_softmax", "lrn", "lstm", "matmul", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_pool_with_argmax", "max_unpool", "mirror_pad", "nll_loss", "pad", "prelu", "relu", "rnn",
    "softmax", "space_to_batch_nd", "space_to_depth", "sparse_add", "sparse_dense", "upsampling",
]

def relu(data: Value) -> RelayExpr:
    """max(x, 0); of NaN, NaN"""

def leaky_relu(data: Value, alpha: float = 0.01) -> RelayExpr:
    """x where it is positive, alpha * x elsewhere"""

def conv1d(
    data: Value,
    weight: Value,
    strides: Sizes = [1],
    padding: Sizes = [0],
    dilation: Sizes = [1],
    groups: int = 1,
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    data_layout: str = 'NCW',
    kernel_layout: str = 'OIW',
    out_layout: str = '',
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """one-dimensional convolution"""

def conv2d(
    data: Value,
    weight: Value,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    groups: int = 1,
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    data_layout: str = 'NCHW',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """two-dimensional convolution"""

def conv3d(
    data: Value,
    weight: Value,
    strides: Sizes = [1, 1, 1],
    padding: Sizes = [0, 0, 0],
    dilation: Sizes = [1, 1, 1],
    groups: int = 1,
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    data_layout: str = 'NCDHW',
    kernel_layout: str = 'OIDHW',
    out_layout: str = '',
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """three-dimensional convolution"""

def contrib_conv2d_NCHWc(
    data: Any,
    kernel: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    data_layout: str = 'NCHW8c',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: str = '',
) -> RelayExpr:
    """two-dimensional convolution over blocks of channels"""

def contrib_depthwise_conv2d_NCHWc(
    data: Any,
    kernel: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    data_layout: str = 'NCHW8c',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: str = '',
) -> RelayExpr:
    """depthwise convolution over blocks of channels"""

def dense(data: Value, weight: Value, units: int = 0, out_dtype: Optional[str] = None) -> RelayExpr:
    """data times the transpose of weight (units, in)"""

def matmul(
    tensor_a: Value,
    tensor_b: Value,
    units: int = 0,
    out_dtype: Optional[str] = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> RelayExpr:
    """product of matrices"""

def batch_matmul(
    tensor_a: Value,
    tensor_b: Value,
    out_dtype: Optional[str] = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> RelayExpr:
    """product of matrices, one for each of a batch; tensor_b transposed unless told otherwise"""

def contrib_dense_pack(
    data: Value,
    weight: Value,
    weight_layout: str = 'NC',
    units: int = 0,
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """nn.dense over a weight whose rows come in blocks: (units/8, in, 8) for NC8n, (units/8, in/4, 8, 4) for NC8n4c"""

def contrib_dense_nbits(
    data: Value,
    weight: Value,
    scale: Value,
    zero: Value,
    block_size: int,
    bits: int = 4,
    units: int = 0,
    weight_layout: str = 'NC',
    data_bits: int = 32,
) -> RelayExpr:
    """data times the transpose of a weight of 4 or 8 bits, as it is stored, with scales for blocks of a row"""

def bias_add(data: Value, bias: Value, axis: int = 1) -> RelayExpr:
    """adds a vector along one axis"""

def max_pool1d(
    data: Value,
    pool_size: Sizes = [1],
    strides: Sizes = [1],
    dilation: Sizes = [1],
    padding: Sizes = [0],
    layout: str = 'NCW',
    out_layout: str = '',
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> RelayExpr:
    """largest element of each window"""

def max_pool2d(
    data: Value,
    pool_size: Sizes = [1, 1],
    strides: Sizes = [1, 1],
    dilation: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    layout: str = 'NCHW',
    out_layout: str = '',
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> RelayExpr:
    """largest element of each window"""

def max_pool3d(
    data: Value,
    pool_size: Sizes = [1, 1, 1],
    strides: Sizes = [1, 1, 1],
    dilation: Sizes = [1, 1, 1],
    padding: Sizes = [0, 0, 0],
    layout: str = 'NCDHW',
    out_layout: str = '',
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> RelayExpr:
    """largest element of each window"""

def avg_pool1d(
    data: Value,
    pool_size: Sizes = [1],
    strides: Sizes = [1],
    dilation: Sizes = [1],
    padding: Sizes = [0],
    layout: str = 'NCW',
    out_layout: str = '',
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> RelayExpr:
    """mean of each window"""

def avg_pool2d(
    data: Value,
    pool_size: Sizes = [1, 1],
    strides: Sizes = [1, 1],
    dilation: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    layout: str = 'NCHW',
    out_layout: str = '',
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> RelayExpr:
    """mean of each window"""

def avg_pool3d(
    data: Value,
    pool_size: Sizes = [1, 1, 1],
    strides: Sizes = [1, 1, 1],
    dilation: Sizes = [1, 1, 1],
    padding: Sizes = [0, 0, 0],
    layout: str = 'NCDHW',
    out_layout: str = '',
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> RelayExpr:
    """mean of each window"""

def max_pool_with_argmax(
    data: Value,
    pool_size: Sizes,
    strides: Sizes = [1],
    dilation: Sizes = [1],
    padding: Sizes = [0],
    ceil_mode: bool = False,
    storage_order: int = 0,
) -> RelayExpr:
    """largest element of each window, and its number in data (int64); data is (n, c, spatial…)"""

def global_max_pool2d(data: Value, layout: str = 'NCHW', out_layout: str = '') -> RelayExpr:
    """largest element of each channel"""

def global_avg_pool2d(data: Value, layout: str = 'NCHW', out_layout: str = '') -> RelayExpr:
    """mean of each channel"""

def adaptive_max_pool1d(
    data: Value,
    output_size: Optional[Sizes] = None,
    layout: str = 'NCW',
    out_layout: str = '',
) -> RelayExpr:
    """largest element of each of output_size parts"""

def adaptive_max_pool2d(
    data: Value,
    output_size: Optional[Sizes] = None,
    layout: str = 'NCHW',
    out_layout: str = '',
) -> RelayExpr:
    """largest element of each of output_size parts"""

def adaptive_max_pool3d(
    data: Value,
    output_size: Optional[Sizes] = None,
    layout: str = 'NCDHW',
    out_layout: str = '',
) -> RelayExpr:
    """largest element of each of output_size parts"""

def adaptive_avg_pool1d(
    data: Value,
    output_size: Optional[Sizes] = None,
    layout: str = 'NCW',
    out_layout: str = '',
) -> RelayExpr:
    """mean of each of output_size parts"""

def adaptive_avg_pool2d(
    data: Value,
    output_size: Optional[Sizes] = None,
    layout: str = 'NCHW',
    out_layout: str = '',
) -> RelayExpr:
    """mean of each of output_size parts"""

def adaptive_avg_pool3d(
    data: Value,
    output_size: Optional[Sizes] = None,
    layout: str = 'NCDHW',
    out_layout: str = '',
) -> RelayExpr:
    """mean of each of output_size parts"""

def attention(
    query: Value,
    key: Value,
    value: Value,
    mask: Optional[Value] = None,
    scale: float = 1.0,
    causal: bool = False,
    fill: float = ...,
    guard: str = 'none',
    query_layout: str = 'BHSD',
    key_layout: str = 'BHTD',
    value_layout: str = 'BHTD',
    mask_layout: str = 'BHST',
    out_layout: str = 'BHSD',
    heads: int = 0,
    kv_heads: int = 0,
    first_head: Sizes = [0, 0, 0],
) -> RelayExpr:
    """softmax of query times key, masked, times value"""

def softmax(data: Value, axis: int = -1) -> RelayExpr:
    """exp(x) over the sum of exp(x) along an axis"""

def log_softmax(data: Value, axis: int = -1) -> RelayExpr:
    """logarithm of softmax"""

def batch_norm(
    data: Value,
    gamma: Value,
    beta: Value,
    moving_mean: Value,
    moving_var: Value,
    axis: int = 1,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> RelayExpr:
    """(data - mean) / sqrt(var + epsilon) * gamma + beta with given statistics; a tuple with the statistics themselves"""

def dropout(data: Any, rate: float = 0.5) -> RelayExpr:
    """data as it is, and a mask of ones: nothing is dropped at inference"""

def layer_norm(
    data: Value,
    gamma: Value,
    beta: Value,
    axis: int = -1,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> RelayExpr:
    """zero mean and unit variance along an axis, then scale and shift"""

def instance_norm(
    data: Value,
    gamma: Value,
    beta: Value,
    axis: int = 1,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> RelayExpr:
    """zero mean and unit variance in each channel of each sample"""

def group_norm(
    data: Value,
    gamma: Value,
    beta: Value,
    num_groups: int = 0,
    axis: int = 1,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> RelayExpr:
    """zero mean and unit variance in each group of channels"""

def l2_normalize(data: Value, eps: float, axis: Optional[Sizes] = None) -> RelayExpr:
    """data over the square root of its sum of squares along some axes, which is at least eps"""

def lrn(
    data: Value,
    size: int = 5,
    axis: int = 1,
    bias: float = 2.0,
    alpha: float = 1e-05,
    beta: float = 0.75,
) -> RelayExpr:
    """data / (bias + alpha / size * sum of squares of its neighbours along an axis) ^ beta"""

def prelu(data: Value, alpha: Value, axis: int = 1) -> RelayExpr:
    """x where x >= 0, alpha * x elsewhere; NaN stays"""

def pad(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = 'constant') -> RelayExpr:
    """puts elements around a tensor; pad_width is (before, after) for each dimension in turn, negative ones take off"""

def mirror_pad(data: Value, pad_width: Sizes, mode: str = 'SYMMETRIC') -> RelayExpr:
    """puts mirror images around a tensor"""

def conv1d_transpose(
    data: Value,
    weight: Value,
    strides: Sizes = [1],
    padding: Sizes = [0],
    dilation: Sizes = [1],
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    groups: int = 1,
    data_layout: str = 'NCW',
    kernel_layout: str = 'IOW',
    out_layout: str = '',
    output_padding: Sizes = [0],
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """one-dimensional transposed convolution"""

def conv2d_transpose(
    data: Value,
    weight: Value,
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
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """two-dimensional transposed convolution"""

def conv3d_transpose(
    data: Value,
    weight: Value,
    strides: Sizes = [1, 1, 1],
    padding: Sizes = [0, 0, 0],
    dilation: Sizes = [1, 1, 1],
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    groups: int = 1,
    data_layout: str = 'NCDHW',
    kernel_layout: str = 'IODHW',
    out_layout: str = '',
    output_padding: Sizes = [0, 0, 0],
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """three-dimensional transposed convolution"""

def contrib_conv2d_winograd_weight_transform(weight: Value, tile_size: int) -> RelayExpr:
    """weight (o, i, r, r) for Winograd's convolution: (alpha, alpha, o, i)"""

def contrib_conv2d_winograd_without_weight_transform(
    data: Value,
    weight: Value,
    tile_size: int,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    groups: int = 1,
    channels: int = 0,
    kernel_size: Sizes = [3, 3],
    data_layout: str = 'NCHW',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: Optional[str] = None,
    transformed: bool = True,
) -> RelayExpr:
    """nn.conv2d by Winograd's algorithm over a weight transformed before"""

def contrib_conv2d_winograd_NCHWc(
    data: Value,
    weight: Value,
    tile_size: int,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    groups: int = 1,
    channels: int = 0,
    kernel_size: Sizes = [3, 3],
    data_layout: str = 'NCHW',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: Optional[str] = None,
    transformed: bool = True,
) -> RelayExpr:
    """convolution over blocks of channels by Winograd's algorithm, the weight transformed before or as it is"""

def deformable_conv2d(
    data: Value,
    offset: Value,
    weight: Value,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilation: Sizes = [1, 1],
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int = 0,
    kernel_size: Optional[Sizes] = None,
    data_layout: str = 'NCHW',
    kernel_layout: str = 'OIHW',
    out_layout: str = '',
    out_dtype: Optional[str] = None,
    mask: Optional[Value] = None,
) -> RelayExpr:
    """convolution whose kernel's elements are moved by offset (n, parts * kh * kw * 2, y, x) and weighted by mask"""

def depth_to_space(data: Value, block_size: int, layout: str = 'NCHW', mode: str = 'DCR') -> RelayExpr:
    """channels laid out as blocks of height and width"""

def space_to_depth(data: Value, block_size: int, layout: str = 'NCHW', mode: str = 'DCR') -> RelayExpr:
    """blocks of height and width as channels"""

def contrib_columns(
    data: Value,
    columns: int,
    layout: str = 'NCHW',
    stride: int = 1,
    dilation: int = 1,
    multiple: int = 1,
) -> RelayExpr:
    """the columns of each window as channels"""

def batch_flatten(data: Value) -> RelayExpr:
    """all dimensions behind the first as one"""

def im2col(
    data: Value,
    kernel_size: Sizes,
    strides: Sizes = [1],
    padding: Sizes = [0],
    dilation: Sizes = [1],
) -> RelayExpr:
    """windows of data (n, c, spatial…) as columns: (n, c * elements of the window, windows)"""

def col2im(
    data: Value,
    image_size: Optional[Union[Value, Sizes]] = None,
    kernel_size: Optional[Union[Value, Sizes]] = None,
    strides: Sizes = [1],
    padding: Sizes = [0],
    dilation: Sizes = [1],
) -> RelayExpr:
    """columns added up where their windows lie in the image; the inverse of nn.im2col where windows do not overlap"""

def upsampling(
    data: Value,
    scale_h: float = 1.0,
    scale_w: float = 1.0,
    layout: str = 'NCHW',
    method: str = 'nearest_neighbor',
    align_corners: bool = False,
) -> RelayExpr:
    """data with more elements in height and width"""

def rnn(
    data: Value,
    weight: Value,
    recurrence: Value,
    optional1: Optional[Value] = None,
    optional2: Optional[Value] = None,
    optional3: Optional[Value] = None,
    optional4: Optional[Value] = None,
    optional5: Optional[Value] = None,
    direction: str = 'forward',
    activations: Optional[Sequence[str]] = None,
    activation_alpha: Optional[Sequence[float]] = None,
    activation_beta: Optional[Sequence[float]] = None,
    clip: float = 0.0,
    linear_before_reset: bool = False,
    input_forget: bool = False,
    layout: int = 0,
    inputs: Sequence[str] = [],
    *,
    hidden_size: int,
) -> RelayExpr:
    """simple recurrent network over (time, batch, input)"""

def lstm(
    data: Value,
    weight: Value,
    recurrence: Value,
    optional1: Optional[Value] = None,
    optional2: Optional[Value] = None,
    optional3: Optional[Value] = None,
    optional4: Optional[Value] = None,
    optional5: Optional[Value] = None,
    direction: str = 'forward',
    activations: Optional[Sequence[str]] = None,
    activation_alpha: Optional[Sequence[float]] = None,
    activation_beta: Optional[Sequence[float]] = None,
    clip: float = 0.0,
    linear_before_reset: bool = False,
    input_forget: bool = False,
    layout: int = 0,
    inputs: Sequence[str] = [],
    *,
    hidden_size: int,
) -> RelayExpr:
    """long short-term memory over (time, batch, input)"""

def gru(
    data: Value,
    weight: Value,
    recurrence: Value,
    optional1: Optional[Value] = None,
    optional2: Optional[Value] = None,
    optional3: Optional[Value] = None,
    optional4: Optional[Value] = None,
    optional5: Optional[Value] = None,
    direction: str = 'forward',
    activations: Optional[Sequence[str]] = None,
    activation_alpha: Optional[Sequence[float]] = None,
    activation_beta: Optional[Sequence[float]] = None,
    clip: float = 0.0,
    linear_before_reset: bool = False,
    input_forget: bool = False,
    layout: int = 0,
    inputs: Sequence[str] = [],
    *,
    hidden_size: int,
) -> RelayExpr:
    """gated recurrent units over (time, batch, input)"""

def contrib_recurrent(
    gates: Value,
    recurrence: Value,
    optional1: Optional[Value] = None,
    optional2: Optional[Value] = None,
    optional3: Optional[Value] = None,
    optional4: Optional[Value] = None,
    optional5: Optional[Value] = None,
    direction: str = 'forward',
    activations: Optional[Sequence[str]] = None,
    activation_alpha: Optional[Sequence[float]] = None,
    activation_beta: Optional[Sequence[float]] = None,
    clip: float = 0.0,
    linear_before_reset: bool = False,
    input_forget: bool = False,
    layout: int = 0,
    inputs: Sequence[str] = [],
    block: int = 0,
    samples: int = 1,
    *,
    cell: str,
    hidden_size: int,
) -> RelayExpr:
    """the loop over time of rnn, lstm and gru, over what the input gives to the gates"""

def space_to_batch_nd(data: Value, block_shape: Sizes, paddings: Sizes, pad_value: float = 0.0) -> RelayExpr:
    """blocks of the spatial axes moved to the batch"""

def batch_to_space_nd(data: Value, block_shape: Sizes, crops: Sizes) -> RelayExpr:
    """places of a block moved from the batch to the spatial axes"""

def max_unpool(data: Value, indices: Value, shape: Sizes) -> RelayExpr:
    """data put at the flat positions that max pooling gave, zero elsewhere"""

def sparse_dense(dense_mat: Any, sparse_mat: Any, sparse_lhs: bool = False) -> RelayExpr:
    """dense (m, k) times the transpose of a sparse matrix (n, k), or with sparse_lhs the other way round"""

def sparse_add(dense_mat: Any, sparse_mat: Any) -> RelayExpr:
    """a matrix plus a sparse one of its shape"""

def correlation(
    data1: Value,
    data2: Value,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    padding: Sizes = [0, 0],
    is_multiply: bool = True,
    layout: str = 'NCHW',
) -> RelayExpr:
    """mean product of windows of data1 with moved windows of data2, a channel for each move"""

def nll_loss(
    predictions: Value,
    targets: Value,
    weights: Value,
    reduction: str = 'mean',
    ignore_index: int = -100,
) -> RelayExpr:
    """negative log likelihood of the targets, weighted by class; the mean over no targets is NaN"""
