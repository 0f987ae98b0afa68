"""Questions about graphs."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Set

from .. import error
from .._ffi import WORLD, call
from .._ir.compare import structural_hash
from .._ir.module import IRModule
from .._ir.transform import BuiltinPass
from .adt import Match, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from .expr import Call, Constant, Function, Let, Op, RelayExpr, Tuple, Var
from .ty import TensorType, Type, type_vars_in
from .type_functor import TypeVisitor


def post_order_visit(expr: RelayExpr, fvisit: Callable[[Any], None]) -> None:
    """Calls fvisit on every node, arguments first, each once; operators too, as lathe.ir.Op."""
    seen = set()
    for node in call("node_post_order", expr):
        op = getattr(node, "op", None)
        if isinstance(op, Op) and op not in seen:
            seen.add(op)
            fvisit(op)
        fvisit(node)


def free_vars(expr: RelayExpr) -> List[Var]:
    """Variables that nothing inside binds, in order of first use."""
    return call("node_free_vars", expr)


def all_vars(expr: RelayExpr) -> List[Var]:
    """All variables, each once."""
    return [n for n in call("node_post_order", expr) if isinstance(n, Var)]


def bound_vars(expr: RelayExpr) -> List[Var]:
    """Variables that something inside binds."""
    free = set(free_vars(expr))
    return [v for v in all_vars(expr) if v not in free]


def list_op_freqs(mod: Any) -> Any:
    """How often each operator is called, by name."""
    counts: dict = {}
    for f in mod.functions.values():
        if isinstance(f, RelayExpr):
            for n in call("node_post_order", f):
                op = getattr(n, "op", None)
                if isinstance(op, Op):
                    counts[op.name] = counts.get(op.name, 0) + 1
    return counts


def structural_equal(lhs: RelayExpr, rhs: RelayExpr) -> bool:
    """The same up to names?"""
    return call("node_equal", lhs, rhs)[0]


def _functions(expr_or_mod: Any) -> List[RelayExpr]:
    if isinstance(expr_or_mod, IRModule):
        return [f for f in expr_or_mod.functions.values() if isinstance(f, RelayExpr)]
    return [expr_or_mod]


# ---- types


class _Tensors(TypeVisitor):
    """The tensor types inside of types."""

    def __init__(self) -> None:
        self.found: List[TensorType] = []

    def visit_tensor_type(self, tt: TensorType) -> None:
        self.found.append(tt)


def all_type_vars(expr: Any, mod: Any = None) -> List[Type]:
    """Parameters of types that an expression, or a type, speaks of."""
    if not isinstance(expr, RelayExpr):
        return type_vars_in([expr])
    return type_vars_in([n.type_annotation for n in call("node_post_order", expr) if isinstance(n, Var)])


def bound_type_vars(expr: Any, mod: Any = None) -> List[Type]:
    """Those of them that functions inside are over."""
    if not isinstance(expr, RelayExpr):
        return []
    bound = {v for n in call("node_post_order", expr) if isinstance(n, Function) for v in n.type_params}
    return [v for v in all_type_vars(expr) if v in bound]


def free_type_vars(expr: Any, mod: Any = None) -> List[Type]:
    """Those of them that no function inside is over."""
    bound = set(bound_type_vars(expr))
    return [v for v in all_type_vars(expr) if v not in bound]


def all_dtypes(expr: RelayExpr) -> Set[str]:
    """The dtypes of all tensors of an expression whose types are known."""
    seen = _Tensors()
    for n in call("node_post_order", expr):
        t = call("node_type", n)
        if t is not None:
            seen.visit(t)
    return {t.dtype for t in seen.found}


# ---- form


def _pattern_vars(p: Any) -> List[Var]:
    if isinstance(p, PatternVar):
        return [p.var]
    inner = p.patterns if isinstance(p, (PatternConstructor, PatternTuple)) else []
    return [v for q in inner for v in _pattern_vars(q)]


def _binds(node: Any) -> List[Var]:
    """Variables that a node binds itself."""
    if isinstance(node, Function):
        return node.params
    if isinstance(node, Let):
        return [node.var]
    return [v for c in node.clauses for v in _pattern_vars(c.lhs)] if isinstance(node, Match) else []


def well_formed(expr: Any) -> bool:
    """Is every variable bound once at most, and used only where it is bound?"""
    for f in _functions(expr):
        binders = [v for n in call("node_post_order", f) for v in _binds(n)]
        if len(set(binders)) != len(binders) or set(free_vars(f)) & set(binders):
            return False
    return True


def check_constant(expr: RelayExpr) -> bool:
    """Is it a constant, or a tuple of such?"""
    if isinstance(expr, Tuple):
        return all(check_constant(f) for f in expr.fields)
    return isinstance(expr, Constant)


def unmatched_cases(match: Match, mod: Any = None) -> List[Any]:
    """Patterns of values that no clause of a match fits; an empty list: it is complete."""

    def constructors(p: PatternConstructor) -> List[Any]:
        header, _ = p.constructor._place()
        rows = call("data_fields", header)[2]
        return [(call("node_ctor", WORLD, header, i), len(row[1])) for i, row in enumerate(rows)]

    def first_split(rows: List[List[Any]]) -> Any:
        return next((r[0] for r in rows if isinstance(r[0], (PatternConstructor, PatternTuple))), None)

    def missing(rows: List[List[Any]], width: int) -> List[List[Any]]:
        """Lists of patterns that none of the rows fits."""
        if not width:
            return [] if rows else [[]]
        split = first_split(rows)
        if split is None:
            rest = missing([r[1:] for r in rows], width - 1)
            return [[PatternWildcard()] + m for m in rest]
        out = []
        kinds = constructors(split) if isinstance(split, PatternConstructor) else [(None, len(split.patterns))]
        for ctor, arity in kinds:
            kept = []
            for head, *tail in rows:
                if not isinstance(head, (PatternConstructor, PatternTuple)):
                    kept.append([PatternWildcard()] * arity + tail)
                elif ctor is None or head.constructor.tag == ctor.tag:
                    inner = head.patterns or [PatternWildcard()] * arity
                    kept.append(list(inner) + tail)
            for m in missing(kept, arity + width - 1):
                inner = m[:arity]
                made = PatternTuple(inner) if ctor is None else PatternConstructor(ctor, inner)
                out.append([made] + m[arity:])
        return out

    return [m[0] for m in missing([[c.lhs] for c in match.clauses], 1)]


# ---- how much there is to compute


def _size(shape: Sequence[Any]) -> int:
    total = 1
    for d in shape:
        if not isinstance(d, int):
            raise error.TypeError("get_total_mac_number: an open size has no number of operations")
        total *= d
    return total


def _macs(node: Call) -> int:
    name, out = node.op.name, node.checked_type
    if name.startswith(("nn.conv", "nn.contrib_conv")) and isinstance(out, TensorType):
        weight = _size(node.args[1].checked_type.shape)
        spread = "transpose" in name
        # each weight meets every position of the output (of the input, where values are spread) once
        layout = str(node.attrs["data_layout"])
        over = node.args[0].checked_type if spread else out
        sizes = dict(zip([c for c in layout if c.isupper()], over.shape))
        return weight * _size([d for axis, d in sizes.items() if axis != "C"])
    if name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
        taken = "transpose_a" in node.attrs and node.attrs["transpose_a"]
        return _size(out.shape) * _size([node.args[0].checked_type.shape[-2 if taken else -1]])
    return 0


def get_total_mac_number(expr: RelayExpr) -> int:
    """Multiplications with addition of the convolutions and matrix products of an expression with types."""
    nodes = call("node_post_order", expr)
    return sum(_macs(n) for n in nodes if isinstance(n, Call) and isinstance(n.op, Op))


def count_layers(expr: RelayExpr, valid_ops: Sequence[str]) -> int:
    """Number of calls of these operators on the way that has the most of them."""
    depth: Dict[RelayExpr, int] = {}
    for n in call("node_post_order", expr):
        below = max([depth.get(a, 0) for a in call("node_args", n)], default=0)
        depth[n] = below + (isinstance(n, Call) and isinstance(n.op, Op) and n.op.name in valid_ops)
    return max(depth.values(), default=0)


def extract_fused_functions(mod: IRModule) -> Dict[Any, Function]:
    """The functions that FuseOps makes of a module, by a number of their structure."""
    fused = BuiltinPass("FuseOps", {})(BuiltinPass("InferType", {})(mod))
    out: Dict[Any, Function] = {}
    for f in _functions(fused):
        for n in call("node_post_order", f):
            if isinstance(n, Function) and (n.attrs or {}).get("Primitive"):
                out[structural_hash(n)] = n
    return out
