"""Statements.  Programs are written with te, TVMScript or ir_builder; these classes
are for looking at the result, and for putting small pieces together."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .._ffi import WORLD, Object, call, register_object
from .expr import Call, IterVar, PrimExpr, Range, StringImm, Var, _Const, convert


def annotation_value(e: Any) -> Any:
    """The value of an attribute: literals as Python values, lists of them as lists, dictionaries as such."""
    if isinstance(e, Call) and e.op.name == "tir.tvm_stack_make_shape":
        return [annotation_value(a) for a in e.args]
    if isinstance(e, Call) and e.op.name == "tir.dictionary":
        values = [annotation_value(a) for a in e.args]
        return dict(zip(values[::2], values[1::2]))
    return e.value if isinstance(e, (StringImm, _Const)) else e


def annotations_of(pairs: Sequence[Tuple[str, Any]]) -> Dict[str, Any]:
    """Annotations of a statement: expressions, and lists as lists of values."""
    return {k: annotation_value(v) if isinstance(v, Call) else v for k, v in pairs}


@register_object("stmt")
class Stmt(Object):
    """A statement; its class tells its kind."""

    def _fields(self) -> List[Any]:
        return call("stmt_fields", self)

    def __str__(self) -> str:
        return call("stmt_text", self)

    __repr__ = __str__


def _field(i: int, doc: str) -> property:
    return property(lambda self: self._fields()[i], doc=doc)


@register_object("stmt", "seq")
class SeqStmt(Stmt):
    """Statements one after the other."""

    def __init__(self, seq: Sequence[Stmt], span: Any = None):
        self._adopt(call("stmt_seq", WORLD, list(seq)))

    seq = property(lambda self: self._fields(), doc="the statements")

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]

    def __len__(self) -> int:
        return len(self.seq)


class ForKind(str, enum.Enum):
    """How a loop runs: the word that For.kind is; ForKind(0) is the first of them, as TVM numbers them."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD_BINDING = "thread_binding"

    @classmethod
    def _missing_(cls, value: Any) -> Optional["ForKind"]:
        return list(cls)[value] if isinstance(value, int) and 0 <= value < len(cls) else None

    def __eq__(self, other: Any) -> bool:
        return list(ForKind)[other] is self if isinstance(other, int) and 0 <= other < 5 else str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __str__(self) -> str:
        return str(self.value)


@register_object("stmt", "for")
class For(Stmt):
    """A loop.  kind is "serial", "parallel", "vectorized", "unrolled" or "thread_binding"."""

    def __init__(
        self,
        loop_var: Var,
        min: Any,
        extent: Any,
        kind: Union[str, int],
        body: Stmt,
        thread_binding: Optional[Any] = None,
        annotations: Optional[Dict[str, Any]] = None,
        span: Any = None,
    ):
        tag = thread_binding.thread_tag if isinstance(thread_binding, IterVar) else thread_binding
        annots = [[k, v] for k, v in (annotations or {}).items()]
        self._adopt(call("stmt_for", WORLD, loop_var, min, extent, ForKind(kind).value, tag, body, annots))

    loop_var = _field(0, "its variable")
    min = _field(1, "first value")
    extent = _field(2, "number of iterations")
    kind = property(lambda self: ForKind(self._fields()[3]), doc="how it runs")
    annotations = property(lambda self: annotations_of(self._fields()[5]), doc="hints by key")
    body = _field(6, "what is repeated")

    @property
    def thread_binding(self) -> Optional[IterVar]:
        """The thread axis, or None."""
        tag = self._fields()[4]
        return None if tag is None else IterVar(None, tag, IterVar.ThreadIndex, tag)


@register_object("stmt", "if")
class IfThenElse(Stmt):
    """A branch."""

    def __init__(self, condition: Any, then_case: Stmt, else_case: Optional[Stmt] = None, span: Any = None):
        self._adopt(call("stmt_if", WORLD, condition, then_case, else_case))

    condition = _field(0, "what decides")
    then_case = _field(1, "done where it holds")
    else_case = _field(2, "done where it does not, or None")


@register_object("stmt", "while")
class While(Stmt):
    """A loop on a condition."""

    def __init__(self, condition: Any, body: Stmt, span: Any = None):
        self._adopt(call("stmt_while", WORLD, condition, body))

    condition = _field(0, "goes on while it holds")
    body = _field(1, "what is repeated")


@register_object("stmt", "let")
class LetStmt(Stmt):
    """A body in which a variable has a value."""

    def __init__(self, var: Var, value: Any, body: Stmt, span: Any = None):
        self._adopt(call("stmt_let", WORLD, var, value, body))

    var = _field(0, "the variable")
    value = _field(1, "its value")
    body = _field(2, "where it holds")


@register_object("stmt", "store")
class BufferStore(Stmt):
    """buffer[indices] = value."""

    def __init__(self, buffer: Any, value: Any, indices: Sequence[Any], predicate: Any = None, span: Any = None):
        self._adopt(call("stmt_store", WORLD, buffer, list(indices), value))

    buffer = _field(0, "what is written")
    indices = _field(1, "where")
    value = _field(2, "what")


@register_object("stmt", "alloc")
class Allocate(Stmt):
    """A body in which a buffer exists."""

    buffer = _field(0, "the buffer")
    body = _field(1, "where it exists")


@register_object("stmt", "eval")
class Evaluate(Stmt):
    """An expression evaluated for its effect."""

    def __init__(self, value: Any, span: Any = None):
        self._adopt(call("stmt_eval", WORLD, convert(value)))

    value = _field(0, "the expression")


@register_object("stmt", "attr")
class AttrStmt(Stmt):
    """An attribute of a body."""

    def __init__(self, node: Any, attr_key: str, value: Any, body: Stmt, span: Any = None):
        var = node if isinstance(node, (Var, IterVar)) else getattr(node, "data", None)  # of a buffer
        self._adopt(
            call(
                "stmt_attr", WORLD, var, attr_key, value if isinstance(value, (str, PrimExpr)) else convert(value), body
            )
        )

    node = _field(0, "what it is about, or None")
    attr_key = _field(1, "its key")
    value = _field(2, "its value")
    body = _field(3, "where it holds")


class BufferRegion:
    """A box of a buffer."""

    def __init__(self, buffer: Any, region: List[Any]):
        self.buffer, self.region = buffer, region

    def __repr__(self) -> str:
        return f"{self.buffer.name}[{', '.join(f'{r.min}:{r.min + r.extent}' for r in self.region)}]"


class MatchBufferRegion:
    """A buffer that is a view of a part of another."""

    def __init__(self, buffer: Any, source: BufferRegion):
        self.buffer, self.source = buffer, source


@register_object("stmt", "block")
class Block(Stmt):
    """A unit of computation with iteration variables of its own."""

    name_hint = _field(0, "its name")
    predicate = _field(2, "where it runs; None: everywhere")
    alloc_buffers = _field(5, "buffers it allocates")
    annotations = property(lambda self: annotations_of(self._fields()[6]), doc="hints by key")
    init = _field(7, "statement that starts a reduction, or None")
    body = _field(8, "what it does")

    @property
    def block(self) -> "Block":
        """Itself: a block and the place where it runs (TVM's BlockRealize) are one."""
        return self

    @property
    def iter_vars(self) -> List[IterVar]:
        """Its iteration variables."""
        kinds = {0: IterVar.DataPar, 1: IterVar.CommReduce, 2: IterVar.Opaque, 3: IterVar.ThreadIndex}
        return [IterVar((lo, lo + n), v, kinds[k]) for v, lo, n, k, _ in self._fields()[1]]

    @property
    def iter_values(self) -> List[PrimExpr]:
        """What each of them is bound to."""
        return [row[4] for row in self._fields()[1]]

    def _regions(self, i: int) -> List[BufferRegion]:
        return [
            BufferRegion(b, [Range.from_min_extent(a, n) for a, n in zip(lo, ext)]) for b, lo, ext in self._fields()[i]
        ]

    @property
    def reads(self) -> List[BufferRegion]:
        """What it reads."""
        return self._regions(3)

    @property
    def writes(self) -> List[BufferRegion]:
        """What it writes."""
        return self._regions(4)

    @property
    def match_buffers(self) -> List["MatchBufferRegion"]:
        """Views that it declares of parts of buffers."""
        return [
            MatchBufferRegion(b, BufferRegion(of, [Range.from_min_extent(a, n) for a, n in zip(lo, ext)]))
            for b, (of, lo, ext) in self._fields()[9]
        ]


#: A block and the place where it runs are one.
BlockRealize = Block


def stmt_seq(*args: Any) -> Stmt:
    """Statements, expressions and lists of those, one after the other."""
    flat: List[Stmt] = []
    for a in args:
        if isinstance(a, (list, tuple)):
            flat.append(stmt_seq(*a))
        else:
            flat.append(a if isinstance(a, Stmt) else Evaluate(a))
    return call("stmt_seq", WORLD, flat)
