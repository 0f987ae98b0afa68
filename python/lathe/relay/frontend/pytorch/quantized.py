"""Quantized TorchScript modules as modules that torch.export takes.

Comes in: a module whose graph works on PyTorch's quantized tensors (quantized::conv2d, aten::quantize_per_tensor, …),
which torch.export does not know.  Goes out: a module that computes the same in PT2E's terms: a quantized tensor is its
integers with a scale and a zero point; an operator turns operands to real numbers, computes, and stores what comes out.
The compiler makes integer kernels of that (FakeQuantizationToInteger).  Graphs are followed node by node: one with
branches or loops is refused."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from .table import refuse

#: ScalarType of a quantized tensor, by number: the dtype of its integers and their range.
_STORED = {12: ("int8", -128, 127), 13: ("uint8", 0, 255), 14: ("int32", -(2**31), 2**31 - 1)}

#: Operators that keep the scale and zero point of their operand.
_KEEP = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool2d avg_pool3d clamp contiguous flatten "
    "hardtanh hardtanh_ max_pool1d max_pool2d mean permute relu relu_ relu6 reshape select slice squeeze transpose "
    "unsqueeze upsample_bilinear2d upsample_nearest2d upsample_nearest3d view"
).split()

#: Operators of one tensor that are told the scale and zero point of what they give.
_UNARY = ("hardswish", "sigmoid", "tanh")


class Quantized(NamedTuple):
    """A quantized tensor: integers, and what they stand for."""

    data: Any
    scale: float
    zero: int
    kind: int  # its ScalarType


class Packed(NamedTuple):
    """Weights of a convolution or product, as names of buffers, and how they are used."""

    weight: str
    scales: str
    zeros: str
    bias: str  # "": there is none
    axis: int
    conv: Sequence[Any]  # stride, padding, dilation, groups; of a product nothing


def is_quantized(module: Any) -> bool:
    """Does the graph of a TorchScript module work on quantized tensors?"""
    kinds = {n.kind() for n in module.inlined_graph.nodes()}
    return any(k.startswith(("quantized::", "aten::quantize_per_")) for k in kinds)


def dequantized(module: Any) -> Any:
    """A torch.nn.Module that computes what the quantized TorchScript module does."""
    import torch
    import torch.ao.quantization.fx._decomposed  # noqa: F401  (its operators)

    class Followed(torch.nn.Module):
        """The graph, node by node."""

        def __init__(self) -> None:
            super().__init__()
            self.graph_nodes, self.fixed = list(module.inlined_graph.nodes()), {}
            _constants(self, module)

        def forward(self, *args: Any) -> Any:
            graph = module.inlined_graph
            values = dict(self.fixed)
            values.update(zip([v.debugName() for v in graph.inputs()][1:], args))
            for node in self.graph_nodes:
                outs = [o.debugName() for o in node.outputs()]
                if all(o in values for o in outs) and outs:
                    continue
                made = _node(self, node, [_get(self, values, v.debugName()) for v in node.inputs()])
                values.update(zip(outs, made if len(outs) != 1 else [made]))
            results = [_get(self, values, v.debugName()) for v in graph.outputs()]
            for r in results:
                if isinstance(r, Quantized):
                    refuse("a quantized tensor as an output; dequantize it in the model")
            return results[0] if len(results) == 1 else tuple(results)

    return Followed()


# ---- constants


class _Buffer(NamedTuple):
    name: str


def _constants(m: Any, module: Any) -> None:
    """Attributes of the module and constants of its graph; tensors become buffers."""
    import torch

    graph = module.inlined_graph
    m.fixed[next(iter(graph.inputs())).debugName()] = module
    for node in m.graph_nodes:
        if node.kind() == "prim::GetAttr":
            held = m.fixed[next(iter(node.inputs())).debugName()]
            value = held._c.getattr(node.s("name")) if hasattr(held, "_c") else getattr(held, node.s("name"))
        elif node.kind() == "prim::Constant":
            value = node.output().toIValue() if node.hasAttributes() else None
        else:
            continue
        out = node.output().debugName()
        if isinstance(value, torch.Tensor) and value.is_quantized:
            refuse("a quantized tensor as a constant of a graph")
        if isinstance(value, torch.Tensor):
            m.fixed[out] = value.item() if value.numel() == 1 else _buffer(m, value)
        elif type(value).__name__ == "ScriptObject" and "PackedParams" in str(value._type()):
            m.fixed[out] = _packed(m, value)
        else:
            m.fixed[out] = value


def _buffer(m: Any, tensor: Any) -> _Buffer:
    name = f"q{sum(1 for _ in m.buffers())}"
    m.register_buffer(name, tensor.detach().clone())
    return _Buffer(name)


def _packed(m: Any, packed: Any) -> Packed:
    import torch

    ops = torch.ops.quantized
    kind = str(packed._type()).rsplit(".", maxsplit=1)[-1]
    conv: Sequence[Any] = ()
    if kind.startswith("Linear"):
        weight, bias = ops.linear_unpack(packed)
    elif kind.startswith("Conv"):
        weight, bias = getattr(ops, f"{kind[:6].lower()}_unpack", ops.conv2d_unpack)(packed)
        which = "conv3d" if weight.dim() == 5 else "conv2d"
        conv = [getattr(ops, f"{which}_{w}")(packed) for w in ("stride", "padding", "dilation", "groups")]
        if getattr(ops, f"{which}_transpose")(packed):
            refuse("a transposed convolution of quantized tensors")
    else:
        return refuse(f"weights of kind {kind}")
    each = weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
    scales = weight.q_per_channel_scales().float() if each else torch.tensor([weight.q_scale()])
    zeros = weight.q_per_channel_zero_points().long() if each else torch.tensor([weight.q_zero_point()])
    rows = weight.shape[0]
    names = [_buffer(m, t).name for t in (weight.int_repr(), scales.expand(rows), zeros.expand(rows))]
    return Packed(*names, _buffer(m, bias).name if bias is not None else "", 0, conv)


# ---- nodes


def _get(m: Any, values: Dict[str, Any], name: str) -> Any:
    v = values[name]
    return getattr(m, v.name) if isinstance(v, _Buffer) else v


def _real(x: Quantized) -> Any:
    import torch

    dtype, low, high = _STORED[x.kind]
    ops = torch.ops.quantized_decomposed
    return ops.dequantize_per_tensor(x.data, x.scale, x.zero, low, high, getattr(torch, dtype))


def _store(x: Any, scale: float, zero: int, kind: int) -> Quantized:
    import torch

    dtype, low, high = _STORED[kind]
    ops = torch.ops.quantized_decomposed
    data = ops.quantize_per_tensor(x, float(scale), int(zero), low, high, getattr(torch, dtype))
    return Quantized(data, float(scale), int(zero), kind)


def _weights(m: Any, p: Packed) -> Any:
    import torch

    data = getattr(m, p.weight)
    ops = torch.ops.quantized_decomposed
    return ops.dequantize_per_channel(data, getattr(m, p.scales), getattr(m, p.zeros), p.axis, -128, 127, data.dtype)


def _product(m: Any, relu: bool, x: Quantized, p: Packed, scale: float, zero: int) -> Quantized:
    import torch

    bias = getattr(m, p.bias) if p.bias else None
    if p.conv:
        flat = x.data.dim() == 3  # in one dimension, which PyTorch keeps as two
        stride, padding, dilation, groups = p.conv
        data = _real(x).unsqueeze(2) if flat else _real(x)
        n = data.dim() - 2
        made = torch.ops.aten.convolution(
            data, _weights(m, p), bias, list(stride), list(padding), list(dilation), False, [0] * n, groups
        )
        made = made.squeeze(2) if flat else made
    else:
        made = torch.nn.functional.linear(_real(x), _weights(m, p), bias)
    return _store(torch.relu(made) if relu else made, scale, zero, x.kind)


def _sum(op: str, relu: bool, a: Quantized, b: Quantized, scale: float, zero: int) -> Quantized:
    import torch

    made = getattr(torch, op)(_real(a), _real(b))
    return _store(torch.relu(made) if relu else made, scale, zero, a.kind)


def _tensors(args: Sequence[Any]) -> List[Quantized]:
    flat = [x for a in args for x in (a if isinstance(a, list) else [a])]
    return [x for x in flat if isinstance(x, Quantized)]


def _node(m: Any, node: Any, args: List[Any]) -> Any:
    import torch

    space, name = node.kind().split("::")
    if node.kind() in ("prim::ListConstruct", "prim::TupleConstruct"):
        return args if name == "ListConstruct" else tuple(args)
    if node.kind() in ("prim::ListUnpack", "prim::TupleUnpack"):
        return args[0]
    if node.kind() in ("aten::Int", "prim::NumToTensor"):
        return int(args[0])
    if space == "prim":
        return refuse(f"{node.kind()} in the graph of a quantized module")
    if name == "quantize_per_tensor":
        return _store(*args[:4])
    if name == "dequantize":
        return _real(args[0])
    operands = _tensors(args)
    if space == "quantized":
        return _quantized_node(m, name, args, operands)
    if not operands:
        return getattr(getattr(torch.ops, space), name)(*args)
    if name not in _KEEP:
        return refuse(f"aten::{name} of quantized tensors")
    x = operands[0]
    return _store(getattr(torch.ops.aten, name)(_real(x), *args[1:]), x.scale, x.zero, x.kind)


def _quantized_node(m: Any, name: str, args: List[Any], operands: List[Quantized]) -> Any:
    import torch

    relu = name.endswith("_relu")
    plain = name[: -len("_relu")] if relu else name
    if plain in ("conv1d", "conv2d", "conv3d", "linear") and operands:
        return _product(m, relu, *args[:4])
    if plain in ("add", "mul") and len(operands) == 2:
        return _sum(plain, relu, *args[:4])
    if plain == "cat":
        made = torch.cat([_real(x) for x in operands], args[1])
        scale, zero = (operands[0].scale, operands[0].zero) if args[2] is None else args[2:4]
        return _store(torch.relu(made) if relu else made, scale, zero, operands[0].kind)
    unary: Dict[str, Callable[..., Any]] = {n: getattr(torch.ops.aten, n) for n in _UNARY}
    if name in unary and len(args) == 3:
        return _store(unary[name](_real(args[0])), args[1], args[2], args[0].kind)
    return refuse(f"quantized::{name} of such operands")


__all__ = ["dequantized", "is_quantized"]
