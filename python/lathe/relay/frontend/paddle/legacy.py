"""Programs in Paddle's older form, ProgramDesc, as those of the newer one.

The older operators name their operands, and have as attributes much that are operands now.  A row of TABLE says the
name of an operator today and its operands: "X" the tensor of that name, "X*" all of them, "=axis" an attribute as an
array, "A/B/=c" the first that is there; behind ":" the outputs; then attributes that have other names now."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np

from .... import error
from . import graph
from .params import READER, TABLES, dtype_of
from .program import Op, Program, Tensor

TABLES.update({
    "ProgramDesc": {1: ("blocks*", "BlockDesc")},
    "BlockDesc": {1: ("idx", "int"), 3: ("vars*", "VarDesc"), 4: ("ops*", "OpDesc")},
    "VarDesc": {1: ("name", "str"), 2: ("type", "VarType"), 3: ("persistable", "bool")},
    "VarType": {1: ("type", "int"), 3: ("lod_tensor", "LoDTensorDesc")},
    "LoDTensorDesc": {1: ("tensor", "TensorDesc")},
    "OpDesc": {1: ("inputs*", "OpVar"), 2: ("outputs*", "OpVar"), 3: ("type", "str"), 4: ("attrs*", "Attr")},
    "OpVar": {1: ("parameter", "str"), 2: ("arguments*", "str")},
    "Attr": {
        1: ("name", "str"), 2: ("type", "int"), 3: ("i", "int"), 4: ("f", "float"), 5: ("s", "str"),
        6: ("ints*", "int"), 7: ("floats*", "float"), 8: ("strings*", "str"), 10: ("b", "bool"),
        11: ("bools*", "bool"), 13: ("l", "int"), 15: ("longs*", "int"), 16: ("float64s*", "double"),
        19: ("float64", "double"), 20: ("scalar", "Scalar"),
        21: ("scalars*", "Scalar"),
    },
    "Scalar": {1: ("type", "int"), 2: ("b", "bool"), 3: ("i", "int"), 4: ("r", "double")},
})  # fmt: skip
_LOD_TENSOR, _FEED, _FETCH = 7, 9, 10
#: The field that holds an attribute, by its type.
_FIELDS = {0: "i", 1: "f", 2: "s", 3: "ints", 4: "floats", 5: "strings", 6: "b", 7: "bools", 9: "l", 11: "longs",
           12: "float64s", 15: "float64", 16: "scalar", 17: "scalars"}  # fmt: skip

_SAME = ("abs acos acosh asin asinh assign atan atanh bitwise_not ceil celu channel_shuffle cos cosh elu erf exp "
         "expm1 flip floor gelu hardshrink isfinite isinf isnan log log10 log1p log2 log_softmax logical_not "
         "logsigmoid logsumexp maxout mish p_norm pixel_shuffle reciprocal relu relu6 round rsqrt selu sigmoid sign "
         "silu sin sinh softmax softplus softsign sqrt square swish tan tanh tanh_shrink thresholded_relu trunc "
         "unbind")  # fmt: skip
_PAIRS = ("add:add sub:subtract mul:multiply div:divide max:maximum min:minimum pow:elementwise_pow mod:remainder "
          "floordiv:floor_divide fmax:fmax fmin:fmin heaviside:heaviside")  # fmt: skip
_BOTH = ("equal not_equal less_than less_equal greater_than greater_equal logical_and logical_or logical_xor "
         "bitwise_and bitwise_or bitwise_xor dot bmm kron dist")  # fmt: skip
_REDUCED = "sum mean max min prod all any amax amin"
_INTERP = "X OutSize SizeTensor Scale"

TABLE: Dict[str, Tuple[str, ...]] = {
    **{name: (name, "X") for name in _SAME.split()},
    **{"elementwise_" + pair.split(":")[0]: (pair.split(":")[1], "X Y") for pair in _PAIRS.split()},
    **{name: (name, "X Y") for name in _BOTH.split()},
    **{f"reduce_{name}": (name, "X =dim", "keep_dim>keepdim out_dtype>dtype") for name in _REDUCED.split()},
    **{f"{name}_interp_v2": (f"{name}_interp", _INTERP, "data_layout>data_format")
       for name in ("bilinear", "nearest", "bicubic", "linear", "trilinear")},
    "addmm": ("addmm", "Input X Y", "Alpha>alpha Beta>beta"),
    "arg_max": ("argmax", "X =axis"),
    "arg_min": ("argmin", "X =axis"),
    "argsort": ("argsort", "X : Out Indices"),
    "assign_value": ("assign_value", ""),
    "atan2": ("atan2", "X1 X2"),
    "batch_norm": ("batch_norm", "X Mean Variance Scale Bias : Y", "data_layout>data_format"),
    "brelu": ("hardtanh", "X"),
    "cast": ("cast", "X", "out_dtype>dtype"),
    "clip": ("clip", "X Min/=min Max/=max"),
    "concat": ("concat", "X* AxisTensor/=axis"),
    "conv2d": ("conv2d", "Input Filter : Output"),
    "conv2d_transpose": ("conv2d_transpose", "Input Filter =output_size : Output"),
    "conv3d": ("conv3d", "Input Filter : Output"),
    "conv3d_transpose": ("conv3d_transpose", "Input Filter =output_size : Output"),
    "cumprod": ("cumprod", "X"),
    "cumsum": ("cumsum", "X =axis"),
    "depthwise_conv2d": ("depthwise_conv2d", "Input Filter : Output"),
    "depthwise_conv2d_transpose": ("depthwise_conv2d_transpose", "Input Filter =output_size : Output"),
    "diagonal": ("diagonal", "Input"),
    "dropout": ("dropout", "X Seed =dropout_prob", "dropout_implementation>mode"),
    "einsum": ("einsum", "Operands*"),
    "expand_as_v2": ("expand_as", "X Y"),
    "expand_v2": ("expand", "X Shape/expand_shapes_tensor*/=shape"),
    "eye": ("eye", "=num_rows =num_columns"),
    "fill_any_like": ("full_like", "X"),
    "fill_constant": ("full_with_tensor", "ValueTensor/=value Shape/ShapeTensor/ShapeTensorList*/=shape"),
    "flatten_contiguous_range": ("flatten", "X"),
    "gather": ("gather", "X Index Axis/=axis"),
    "gather_nd": ("gather_nd", "X Index"),
    "grid_sampler": ("grid_sample", "X Grid : Output"),
    "group_norm": ("group_norm", "X Scale Bias : Y", "data_layout>data_format"),
    "hard_shrink": ("hardshrink", "X"),
    "hard_sigmoid": ("hardsigmoid", "X"),
    "hard_swish": ("hardswish", "X"),
    "increment": ("increment", "X", "step>value"),
    "index_sample": ("index_sample", "X Index"),
    "index_select": ("index_select", "X Index", "dim>axis"),
    "instance_norm": ("instance_norm", "X Scale Bias : Y"),
    "layer_norm": ("layer_norm", "X Scale Bias : Y"),
    "leaky_relu": ("leaky_relu", "X", "alpha>negative_slope"),
    "linspace": ("linspace", "Start Stop Num"),
    "lookup_table_v2": ("embedding", "Ids W"),
    "masked_fill": ("masked_fill", "x mask value : out"),
    "matmul_v2": ("matmul", "X Y", "trans_x>transpose_x trans_y>transpose_y"),
    "max_pool2d_with_index": ("max_pool2d_with_index", "X", "ksize>kernel_size"),
    "max_pool3d_with_index": ("max_pool3d_with_index", "X", "ksize>kernel_size"),
    "mean": ("mean", "X"),
    "meshgrid": ("meshgrid", "X* : Out*"),
    "mv": ("mv", "X Vec"),
    "one_hot_v2": ("one_hot", "X depth_tensor/=depth"),
    "pad": ("pad", "X"),
    "pad3d": ("pad3d", "X Paddings/=paddings", "value>pad_value"),
    "pool2d": ("pool2d", "X =ksize"),
    "pool3d": ("pool3d", "X =ksize"),
    "pow": ("pow", "X", "factor>y"),
    "prelu": ("prelu", "X Alpha"),
    "put_along_axis": ("put_along_axis", "Input Index Value : Result",
                       "Axis>axis Reduce>reduce Include_self>include_self"),
    "range": ("arange", "Start End Step"),
    "repeat_interleave": ("repeat_interleave", "X", "Repeats>repeats dim>axis"),
    "reshape2": ("reshape", "X Shape/ShapeTensor*/=shape"),
    "roll": ("roll", "X ShiftsTensor/=shifts"),
    "scale": ("scale", "X ScaleTensor"),
    "scatter": ("scatter", "X Ids Updates"),
    "scatter_nd_add": ("scatter_nd_add", "X Index Updates"),
    "shape": ("shape", "Input"),
    "size": ("numel", "Input"),
    "slice": ("slice", "Input StartsTensor/StartsTensorList*/=starts EndsTensor/EndsTensorList*/=ends"),
    "softmax_with_cross_entropy": ("cross_entropy_with_softmax", "Logits Label : Softmax Loss"),
    "softshrink": ("softshrink", "X", "lambda>threshold"),
    "split": ("split", "X SectionsTensorList*/=sections AxisTensor/=axis : Out*"),
    "squeeze2": ("squeeze", "X =axes"),
    "stack": ("stack", "X* : Y"),
    "strided_slice": ("strided_slice", "Input StartsTensor/StartsTensorList*/=starts EndsTensor/EndsTensorList*/=ends "
                      "StridesTensor/StridesTensorList*/=strides"),
    "sum": ("add_n", "X*"),
    "take_along_axis": ("take_along_axis", "Input Index : Result", "Axis>axis"),
    "tile": ("tile", "X RepeatTimes/repeat_times_tensor*/=repeat_times"),
    "top_k_v2": ("topk", "X K/=k : Out Indices"),
    "transpose2": ("transpose", "X", "axis>perm"),
    "tril_triu": ("triu", "X"),
    "unbind": ("unbind", "X : Out*"),
    "unfold": ("unfold", "X : Y"),
    "unsqueeze2": ("unsqueeze", "X AxesTensor/AxesTensorList*/=axes"),
    "unstack": ("unstack", "X : Y*"),
    "where": ("where", "Condition X Y"),
    "where_index": ("nonzero", "Condition"),
}  # fmt: skip


def _attribute(a: Any) -> Any:
    field = _FIELDS.get(a.type)
    found = getattr(a, field) if field is not None else None
    if field in ("scalar", "scalars"):
        many = found if field == "scalars" else [found]
        made = [{1: s.b, 2: s.i, 3: s.r}.get(s.type) for s in many if s is not None]
        return made if field == "scalars" else made[0]
    return found


def _attrs(o: Any) -> Dict[str, Any]:
    made = {a.name: _attribute(a) for a in o.attrs}
    for name in ("dtype", "out_dtype"):
        if isinstance(made.get(name), int):
            made[name] = dtype_of(made[name]) if made[name] >= 0 else None
    if not made.get("values"):  # of assign_value, one list for each dtype
        made["values"] = next((made[k] for k in made if k.endswith("_values") and made[k]), None)
    return made


def _operand(text: str, tensors: Dict[str, List[str]], attrs: Dict[str, Any]) -> Any:
    for part in text.split("/"):
        if part[0] == "=":
            found = attrs.get(part[1:])
            return None if found is None else np.array(found, None if found else "int64")
        given = tensors.get(part.rstrip("*"))
        if given:
            return list(given) if part.endswith("*") else given[0]
    return None


def _op(o: Any) -> Op:
    row = TABLE.get(o.type)
    if row is None:
        return Op(f"{o.type} (older form)", [], [], {})  # which is refused by its name
    attrs = _attrs(o)
    operands, _, outputs = row[1].partition(":")
    inputs, written = ({v.parameter: v.arguments for v in side} for side in (o.inputs, o.outputs))
    for pair in row[2].split() if len(row) > 2 else ():
        old, new = pair.split(">")
        if old in attrs:
            attrs[new] = attrs.pop(old)
    name = row[0]
    if o.type == "tril_triu" and attrs.get("lower"):
        name = "tril"
    if o.type == "fill_constant" and attrs.get("str_value"):
        attrs["value"] = float(attrs["str_value"])
    if attrs.get("reduce_all"):
        attrs["dim"] = []
    args = [_operand(text, inputs, attrs) for text in operands.split()]
    outs = [_operand(text, written, {}) for text in outputs.split() or ["Out"]]
    return Op(name, args, outs, attrs)


def read(data: bytes) -> Program:
    """The program that a file holds."""
    blocks = READER.read(data, "ProgramDesc").blocks
    if not blocks:
        READER.broken("there is no block")
    made = Program([], [], [], [])
    inputs: List[Tuple[int, Tensor]] = []
    outputs: List[Tuple[int, str]] = []
    tensors = {}
    for v in blocks[0].vars:
        if v.type is None or v.type.type != _LOD_TENSOR or v.type.lod_tensor is None:
            continue
        told = v.type.lod_tensor.tensor
        tensors[v.name] = (list(told.dims), told.data_type)
        if v.persistable:
            made.params.append(Tensor(v.name, v.name, list(told.dims), dtype_of(told.data_type)))
    for o in blocks[0].ops:
        if o.type == "feed":
            name = o.outputs[0].arguments[0]
            if name not in tensors:
                raise error.ArgumentError(f"from_paddle: there is no variable '{name}'")
            shape, kind = tensors[name]
            inputs.append((_attrs(o).get("col", 0), Tensor(name, name, shape, dtype_of(kind))))
        elif o.type == "fetch":
            outputs.append((_attrs(o).get("col", 0), o.inputs[0].arguments[0]))
        else:
            made.ops.append(_op(o))
    made.inputs.extend(t for _, t in sorted(inputs, key=lambda p: p[0]))
    made.outputs.extend(name for _, name in sorted(outputs, key=lambda p: p[0]))
    return made


def without_rows() -> List[str]:
    """Names in the table that no row has: none."""
    return sorted({r[0] for r in TABLE.values()} - set(graph.ROWS))


__all__ = ["TABLE", "read", "without_rows"]
