"""from_pytorch: programs of torch.export and TorchScript modules."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .... import error
from ...._ir.module import IRModule
from ....runtime.ndarray import NDArray, from_dlpack
from ...expr import Function, RelayExpr, as_expr, const, var
from ...expr import Tuple as TupleExpr
from ...ty import TensorType
from . import decompose, graph, sizes, table

OLDEST = (2, 5)


def from_pytorch(
    script_module: Any,
    input_infos: Optional[Sequence[Any]] = None,
    custom_convert_map: Optional[Dict[str, Any]] = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: Optional[str] = None,
    preserve_pytorch_scopes: bool = False,
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """A module and its parameters from a program of torch.export, or from a TorchScript module.

    input_infos names the inputs, in order: (name, shape) or (name, (shape, dtype)).  A program of torch.export knows
    its inputs, so that it may be left out; sizes that it leaves open stay open.  custom_convert_map adds rows by
    operator, {"aten.my_op": f}: f(g, *arguments) gives an expression.  Parameters share the memory of PyTorch's
    tensors where that lies in order.  Buffers that the program changes come as outputs behind its own."""
    check_version()
    if keep_quantized_weight or export_renamed_c_graph_path is not None:
        raise error.UnsupportedError(
            "from_pytorch: keep_quantized_weight and export_renamed_c_graph_path are not supported"
        )
    program, prefix = script_module, ""
    if not hasattr(program, "graph_signature"):
        from . import torchscript

        program = torchscript.exported(script_module, input_infos, default_dtype)
        prefix = torchscript.PREFIX
    more = {_row_name(k): v for k, v in (custom_convert_map or {}).items()}
    return convert(program, _names(input_infos), more, prefix)


def check_version() -> None:
    """Raises unless PyTorch is there, and new enough."""
    try:
        import torch
    except ImportError:
        raise error.NotFoundError(
            "from_pytorch needs PyTorch, which cannot be imported here: pip install torch"
        ) from None
    if tuple(int(p) for p in torch.__version__.split(".")[:2]) < OLDEST:
        raise error.UnsupportedError(
            f"from_pytorch: PyTorch {torch.__version__} is too old; {OLDEST[0]}.{OLDEST[1]} or newer is needed"
        )


def _row_name(name: str) -> str:
    """TVM's aten::op and PyTorch's aten.op are the same."""
    return name.replace("::", ".")


def _names(infos: Optional[Sequence[Any]]) -> Optional[List[str]]:
    return None if infos is None else [i if isinstance(i, str) else i[0] for i in infos]


def share(tensor: Any) -> NDArray:
    """A tensor's memory as an array; a copy where it does not lie in order."""
    t = tensor.detach()
    if t.device.type != "cpu":
        t = t.cpu()
    if t.is_neg() or t.is_conj():
        t = t.resolve_neg().resolve_conj()
    if not t.is_contiguous():
        t = t.contiguous()
    if str(t.dtype) == "torch.bool":
        return NDArray(t.numpy(), "bool")
    return from_dlpack(t)


def tensor_const(tensor: Any) -> RelayExpr:
    """A tensor as a constant."""
    graph.dtype_name(tensor.dtype)
    return const(share(tensor))


def refuse_all(absent: Dict[str, int]) -> None:
    """Raises, naming every operator that has no row."""
    if absent:
        listed = ", ".join(f"{n} ({k})" if k > 1 else n for n, k in sorted(absent.items()))
        raise error.UnsupportedError(
            f"from_pytorch: operators that are not supported: {listed}; "
            'custom_convert_map takes rows for them, or torch.compile(backend="lathe") leaves them to PyTorch'
        )


def convert(
    program: Any, names: Optional[List[str]] = None, more: Optional[Dict[str, Any]] = None, prefix: str = ""
) -> Tuple[IRModule, Dict[str, NDArray]]:
    """The module of an exported program; its parameters lose the prefix."""
    program = program.run_decompositions(decompose.decompositions(more))
    refuse_all(graph.unsupported(program.graph_module, more))
    g = graph.Graph(more=more)
    signature = program.graph_signature
    params: Dict[str, NDArray] = {}
    variables: List[RelayExpr] = []
    weights: List[RelayExpr] = []
    inputs: List[Any] = []
    dims = Dims()
    wanted = iter(names) if names is not None else None
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    for node, spec in zip(nodes, signature.input_specs):
        kind, known = spec.kind.name, node.meta.get("val")
        if kind == "USER_INPUT":
            if known is None or isinstance(known, (bool, int, float, str)):
                inputs.append(known if known is not None else getattr(spec.arg, "value", None))
                continue
            name = next(wanted, node.name) if wanted is not None else node.name
            if sizes.is_symbolic(known):
                made = var(name, TensorType((), "int64" if type(known).__name__ == "SymInt" else "float64"))
            else:
                made = var(name, TensorType([dims.dim(d) for d in known.shape], graph.dtype_name(known.dtype)))
            variables.append(made)
            inputs.append(made)
        elif kind in ("PARAMETER", "BUFFER"):
            tensor = (
                program.state_dict[spec.target] if spec.target in program.state_dict else program.constants[spec.target]
            )
            name = spec.target[len(prefix) :] if spec.target.startswith(prefix) else spec.target
            made = var(name, TensorType(list(tensor.shape), graph.dtype_name(tensor.dtype)))
            params[name] = share(tensor)
            weights.append(made)
            inputs.append(made)
        elif kind == "CONSTANT_TENSOR":
            inputs.append(tensor_const(program.constants[spec.target]))
        else:
            table.refuse(f"from_pytorch: input '{node.name}' is a {kind.lower()}")

    def attribute(name: str) -> Any:
        found: Any = program.graph_module
        for word in name.split("."):
            found = getattr(found, word)
        return found if hasattr(found, "graph") else tensor_const(found)

    values = g.run(program.graph, inputs, attribute)
    mine, changed = [], []
    for value, spec in zip(values, signature.output_specs):
        if not isinstance(value, RelayExpr):
            if isinstance(value, (bool, int, float)):
                value = as_expr(np.array(value))
            else:
                continue
        (mine if spec.kind.name == "USER_OUTPUT" else changed).append(value)
    outs = mine + changed
    body = outs[0] if len(outs) == 1 else TupleExpr(outs)
    mod = IRModule.from_expr(Function(variables + weights, body))
    return mod, params


class Dims:
    """Sizes of inputs: one variable of the compiler's for each symbol."""

    def __init__(self) -> None:
        self._vars: Dict[str, Any] = {}

    def dim(self, d: Any) -> Any:
        """A size in a type."""
        if isinstance(d, int):
            return d
        return self._expr(d.node.expr)

    def _expr(self, e: Any) -> Any:
        from .... import te

        if e.is_Symbol:
            return self._vars.setdefault(str(e), te.var(str(e)))
        if getattr(e, "is_Integer", False):
            return int(e)
        args = [self._expr(a) for a in e.args]
        kind = type(e).__name__
        if kind in ("Add", "Mul"):
            made = args[0]
            for a in args[1:]:
                made = made + a if kind == "Add" else made * a
            return made
        if kind == "FloorDiv":
            return te.floordiv(args[0], args[1])
        return table.refuse(
            f"from_pytorch: an input of size {e}; give the size that it is computed of an input of its own"
        )
