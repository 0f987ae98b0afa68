"""Patterns of dataflow: what a piece of a graph looks like.

>>> x, w = wildcard(), is_constant()
>>> conv = is_op("nn.conv2d")(x, w).has_attr({"strides": [1, 1]})
>>> pattern = conv.optional(is_op("nn.relu"))
>>> pattern.match(expr)

A pattern that occurs twice stands for the same node twice; add and multiply also match with
their arguments exchanged."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Sequence

from ... import error
from ..._ffi import WORLD, answer, call, callback_scope
from ..expr import RelayExpr, as_expr
from ..op_rows import row
from ..ty import Any_, Type

_AskFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class DFPattern:
    """A pattern.  Calls, operators and the methods below make larger ones."""

    kind = ""

    def __init__(self, parts: Sequence["DFPattern"] = (), what: Any = None):
        self.parts = [_pattern(p) for p in parts]
        self.what = what

    # ---- making patterns

    def __call__(self, *args: Any) -> "CallPattern":
        return CallPattern(self, None if len(args) == 1 and args[0] is None else args)

    def __or__(self, other: "DFPattern") -> "AltPattern":
        return AltPattern(self, other)

    def __add__(self, other: Any) -> "CallPattern":
        return is_op("add")(self, other)

    def __sub__(self, other: Any) -> "CallPattern":
        return is_op("subtract")(self, other)

    def __mul__(self, other: Any) -> "CallPattern":
        return is_op("multiply")(self, other)

    def __truediv__(self, other: Any) -> "CallPattern":
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Dict[str, Any]) -> "DFPattern":
        """With these attributes (TOpPattern: the fusion kind)."""
        out: DFPattern = self
        for name, value in attrs.items():
            out = AttrPattern([out], [name, _text(value)])
        return out

    def has_type(self, ttype: Type) -> "DFPattern":
        """Of this type."""
        return TypePattern([self], ttype)

    def has_dtype(self, dtype: str) -> "DFPattern":
        """A tensor of this dtype."""
        return DataTypePattern([self], str(dtype))

    def has_shape(self, shape: Sequence[Any]) -> "DFPattern":
        """A tensor of this shape; None and relay.Any() stand for any size."""
        return ShapePattern([self], [int(d) if not isinstance(d, (Any_, type(None))) else None for d in shape])

    def optional(self, option_constructor: Callable[["DFPattern"], "DFPattern"]) -> "DFPattern":
        """Itself, or what the function (such as is_op("nn.relu")) makes of it."""
        return AltPattern(option_constructor(self), self)

    def dominates(self, parent: "DFPattern", path: Optional["DFPattern"] = None) -> "DominatorPattern":
        """Itself behind `parent`, through nodes that all match `path`, none of which is read elsewhere."""
        return DominatorPattern(parent, path if path is not None else wildcard(), self)

    # ---- using patterns

    def rows(self) -> List[Any]:
        """The pattern as the C library reads it: parts before what they are part of."""
        return [[p.kind, [index for index in places], p.what] for p, places in _numbered(self)]

    def match(self, expr: RelayExpr) -> bool:
        """Does the expression look like this?"""
        return call("pattern_match", WORLD, self.rows(), as_expr(expr)) is not None

    def matched(self, expr: RelayExpr) -> Optional[Dict["DFPattern", List[RelayExpr]]]:
        """What each part stands for, or None."""
        pairs = call("pattern_match", WORLD, self.rows(), as_expr(expr))
        return None if pairs is None else _node_map(self, pairs)

    def rewrite(self, callback: Callable[[RelayExpr, RelayExpr, Any], RelayExpr], expr: RelayExpr) -> RelayExpr:
        """The expression with what callback(pre, post, node_map) gives in the place of each match."""

        class _Callback(DFPatternCallback):
            def __init__(inner) -> None:  # pylint: disable=no-self-argument
                super().__init__()
                inner.pattern = self

            def callback(inner, pre, post, node_map):  # pylint: disable=no-self-argument
                return callback(pre, post, node_map)

        return rewrite(_Callback(), expr)

    def partition(
        self,
        expr: RelayExpr,
        attrs: Optional[Dict[str, Any]] = None,
        check: Optional[Callable[[RelayExpr], bool]] = None,
    ) -> RelayExpr:
        """Each match becomes a function of its own, marked PartitionedFromPattern, if check agrees."""
        fn = _function(lambda node, _pairs: bool(check(node))) if check is not None else None
        address = ctypes.cast(fn, ctypes.c_void_p).value if fn is not None else None
        return call("pattern_partition", WORLD, expr, self.rows(), [[k, v] for k, v in (attrs or {}).items()], address)

    def __repr__(self) -> str:
        inner = ", ".join([repr(p) for p in self.parts] + ([repr(self.what)] if self.what is not None else []))
        return f"{type(self).__name__}({inner})"


def _pattern(x: Any) -> DFPattern:
    if isinstance(x, DFPattern):
        return x
    if isinstance(x, (RelayExpr, int, float)):
        return is_expr(as_expr(x))
    raise error.TypeError(f"a pattern is made of patterns, not of a {type(x).__name__}: {x!r}")


def _text(value: Any) -> str:
    """As the compiler writes an attribute's value."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(f'"{v}"' if isinstance(v, str) else _text(v) for v in value) + "]"
    return f"{value:g}" if isinstance(value, float) and value != int(value) else str(value)


def _numbered(pattern: DFPattern) -> List[Any]:
    """(part, numbers of its parts), parts first."""
    number: Dict[int, int] = {}
    out: List[Any] = []
    stack = [(pattern, False)]
    while stack:
        p, ready = stack.pop()
        if id(p) in number:
            continue
        if not ready:
            stack.append((p, True))
            stack.extend((q, False) for q in reversed(p.parts))
            continue
        out.append((p, [number[id(q)] for q in p.parts]))
        number[id(p)] = len(out) - 1
    return out


def _node_map(pattern: DFPattern, pairs: Sequence[Any]) -> Dict[DFPattern, List[RelayExpr]]:
    order = _numbered(pattern)
    return {order[i][0]: [node] for i, node in pairs}


def _function(fn: Callable[[RelayExpr, Any], Any]) -> Any:
    """The C function that asks fn(node, match)."""
    keep: List[Any] = []

    def run(_user: Any, _n: int, args: int, out: int) -> int:
        with callback_scope(args, 2) as ((node, pairs), failed):
            try:
                answer(out, fn(node, pairs), keep)
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return _AskFn(run)


def _class(name: str, kind_: str, doc: str) -> type:
    return type(name, (DFPattern,), {"kind": kind_, "__doc__": doc})


WildcardPattern = _class("WildcardPattern", "wildcard", "Anything.")
ExprPattern = _class("ExprPattern", "node", "Exactly this expression.")
ConstantPattern = _class("ConstantPattern", "const", "A constant.")
VarPattern = _class("VarPattern", "var", "A variable.")
OpPattern = _class("OpPattern", "op", "An operator, to be called.")
TuplePattern = _class("TuplePattern", "tuple", "A tuple.")
TupleGetItemPattern = _class("TupleGetItemPattern", "get", "A field of a tuple.")
AttrPattern = _class("AttrPattern", "attr", "With an attribute.")
TypePattern = _class("TypePattern", "type", "Of a type.")
DataTypePattern = _class("DataTypePattern", "dtype", "Of a dtype.")
ShapePattern = _class("ShapePattern", "shape", "Of a shape.")
IfPattern = _class("IfPattern", "if", "An if.")
LetPattern = _class("LetPattern", "let", "A let.")


class CallPattern(DFPattern):
    """A call; args None: whatever the arguments are."""

    kind = "call"

    def __init__(self, op: DFPattern, args: Optional[Sequence[Any]]):
        super().__init__([op, *(args or ())], True if args is None else None)


class AltPattern(DFPattern):
    """One or the other."""

    kind = "alt"

    def __init__(self, left: DFPattern, right: DFPattern):
        super().__init__([left, right])


class DominatorPattern(DFPattern):
    """A child behind a parent."""

    kind = "dominator"

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern):
        super().__init__([parent, path, child])


def wildcard() -> DFPattern:
    """Anything."""
    return WildcardPattern()


def is_var(name: str = "") -> DFPattern:
    """A variable, of that name if one is given."""
    return VarPattern((), name or None)


def is_constant() -> DFPattern:
    """A constant."""
    return ConstantPattern()


def is_expr(expr: RelayExpr) -> DFPattern:
    """Exactly this expression."""
    return ExprPattern((), as_expr(expr))


def is_op(op_name: str) -> DFPattern:
    """An operator; called with patterns it stands for a call."""
    row(op_name)
    return OpPattern((), op_name)


def is_tuple(fields: Optional[Sequence[Any]] = None) -> DFPattern:
    """A tuple; without fields any tuple."""
    return TuplePattern(fields or (), True if fields is None else None)


def is_tuple_get_item(tuple_value: DFPattern, index: Optional[int] = None) -> DFPattern:
    """A field of a tuple; without an index any field."""
    return TupleGetItemPattern([tuple_value], -1 if index is None else index)


def is_if(cond: Any, true_branch: Any, false_branch: Any) -> DFPattern:
    """An if."""
    return IfPattern([cond, true_branch, false_branch])


def is_let(var: Any, value: Any, body: Any) -> DFPattern:
    """A let."""
    return LetPattern([var, value, body])


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """The child behind the parent, through nodes that match path."""
    return DominatorPattern(parent, path, child)


def has_attr(attrs: Dict[str, Any], pattern: Optional[DFPattern] = None) -> DFPattern:
    """A pattern (anything, if none is given) with attributes."""
    return (pattern if pattern is not None else wildcard()).has_attr(attrs)


def has_dtype(dtype: str, pattern: Optional[DFPattern] = None) -> DFPattern:
    """A pattern with a dtype."""
    return (pattern if pattern is not None else wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: Optional[DFPattern] = None) -> DFPattern:
    """A pattern with a shape."""
    return (pattern if pattern is not None else wildcard()).has_shape(shape)


def has_type(ttype: Type, pattern: Optional[DFPattern] = None) -> DFPattern:
    """A pattern with a type."""
    return (pattern if pattern is not None else wildcard()).has_type(ttype)


class DFPatternCallback:
    """A rewrite: set self.pattern, override callback.  rewrite_once: one round instead of as
    many as change something."""

    def __init__(self, require_type: bool = False, rewrite_once: bool = False):
        self.pattern: Optional[DFPattern] = None
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def rewrite(self, expr: RelayExpr) -> RelayExpr:
        """The expression with the matches replaced."""
        return rewrite(self, expr)

    def callback(self, pre: RelayExpr, post: RelayExpr, node_map: Dict[DFPattern, List[RelayExpr]]) -> RelayExpr:
        """What goes in the place of post; node_map says what each part of the pattern stands for."""
        raise NotImplementedError()


def rewrite(callbacks: Any, expr: RelayExpr, mod: Any = None) -> RelayExpr:
    """The expression with matches of one or several callbacks replaced."""
    rules, keep = [], []
    for c in callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]:
        if c.pattern is None:
            raise error.ArgumentError(f"{type(c).__name__} has no pattern: set self.pattern")

        def ask(node: RelayExpr, pairs: Any, c: Any = c) -> RelayExpr:
            return as_expr(c.callback(node, node, _node_map(c.pattern, pairs)))

        fn = _function(ask)
        keep.append(fn)
        rules.append([c.pattern.rows(), ctypes.cast(fn, ctypes.c_void_p).value, c.rewrite_once])
    return call("pattern_rewrite", WORLD, expr, rules)


def partition(
    pattern: DFPattern,
    expr: RelayExpr,
    attrs: Optional[Dict[str, Any]] = None,
    check: Optional[Callable[[RelayExpr], bool]] = None,
) -> RelayExpr:
    """See DFPattern.partition."""
    return pattern.partition(expr, attrs, check)


def match(pattern: DFPattern, expr: RelayExpr) -> bool:
    """See DFPattern.match."""
    return pattern.match(expr)
