"""Data types: constructors with fields, and match.

    List = relay.GlobalTypeVar("List")
    a = relay.TypeVar("a")
    nil = relay.Constructor("Nil", [], List)
    cons = relay.Constructor("Cons", [a, List(a)], List)
    mod[List] = relay.TypeData(List, [a], [cons, nil])
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from .. import error
from .._ffi import WORLD, call, register_object
from .expr import RelayExpr, Var, as_expr
from .ty import Type


@register_object("type", "var")
class TypeVar(Type):
    """A type parameter of a function or of a data type."""

    def __init__(self, name_hint: str, kind: Any = None):
        self._adopt(call("type_var", WORLD, name_hint))

    @property
    def name_hint(self) -> str:
        """Its name."""
        return str(self)


class GlobalTypeVar:
    """The name of a data type; called with types it gives the type over them."""

    def __init__(self, name_hint: str, kind: Any = None):
        self._header: Type = call("data_type", WORLD, name_hint)

    @staticmethod
    def _of(header: Type) -> "GlobalTypeVar":
        made = GlobalTypeVar.__new__(GlobalTypeVar)
        made._header = header
        return made

    @property
    def name_hint(self) -> str:
        """Its name."""
        return call("data_fields", self._header)[0]

    def __call__(self, *args: Type) -> "TypeCall":
        return TypeCall(self, args)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GlobalTypeVar) and self._header == other._header

    def __hash__(self) -> int:
        return hash(self.name_hint)

    def __repr__(self) -> str:
        return f'GlobalTypeVar("{self.name_hint}")'


@register_object("type", "data")
class TypeCall(Type):
    """A data type over the types that stand for its parameters."""

    def __init__(self, func: GlobalTypeVar, args: Sequence[Type]):
        self._adopt(call("data_call", WORLD, func._header, list(args)))

    func = property(lambda self: GlobalTypeVar._of(self), doc="the data type's name")
    args = property(lambda self: self._fields()[3], doc="the types it is over")


@register_object("node", "ctor")
class Constructor(RelayExpr):
    """A constructor of a data type; called it gives a value of the type.  One that is made here takes part in
    expressions
    once relay.TypeData has put it into its type."""

    def __init__(self, name_hint: str, inputs: Sequence[Type], belong_to: GlobalTypeVar):
        self._pending = (name_hint, list(inputs), belong_to)

    def _place(self) -> Any:
        if self._h is None:
            raise error.ArgumentError(
                f"constructor '{self._pending[0]}' belongs to no type yet; relay.TypeData makes one of constructors"
            )
        return call("ctor_fields", self)

    @property
    def name_hint(self) -> str:
        """Its name."""
        return self._pending[0] if self._h is None else call("node_fields", self)[0]

    belong_to = property(lambda self: GlobalTypeVar._of(self._place()[0]), doc="the data type's name")
    tag = property(lambda self: self._place()[1], doc="its number among the type's constructors")

    @property
    def inputs(self) -> List[Type]:
        """Types of the fields."""
        header, tag = self._place()
        return call("data_fields", header)[2][tag][1]

    def __call__(self, *args: Any) -> Any:
        self._place()
        return super().__call__(*args)


class TypeData:
    """A data type: parameters and constructors.  mod[header] = TypeData(…) makes it known in a module."""

    def __init__(self, header: GlobalTypeVar, type_vars: Sequence[TypeVar], constructors: Sequence[Constructor]):
        self.header = header
        call(
            "data_define",
            WORLD,
            header._header,
            list(type_vars),
            [[c._pending[0], c._pending[1]] for c in constructors],
        )
        for i, c in enumerate(constructors):
            c._adopt(call("node_ctor", WORLD, header._header, i))
        self.type_vars, self.constructors = list(type_vars), list(constructors)


# ---- patterns


class Pattern:
    """What a clause of a match fits."""

    def _row(self) -> List[Any]:
        raise NotImplementedError()


class PatternWildcard(Pattern):
    """Fits anything."""

    def _row(self) -> List[Any]:
        return ["_"]


class PatternVar(Pattern):
    """Fits anything, which the variable then stands for."""

    def __init__(self, var: Var):
        self.var = var

    def _row(self) -> List[Any]:
        return ["var", self.var]


class PatternConstructor(Pattern):
    """Fits what the constructor made, if the fields fit."""

    def __init__(self, constructor: Constructor, patterns: Optional[Sequence[Pattern]] = None):
        self.constructor, self.patterns = constructor, list(patterns or [])

    def _row(self) -> List[Any]:
        header, tag = self.constructor._place()
        return ["ctor", header, tag, [p._row() for p in self.patterns]]


class PatternTuple(Pattern):
    """Fits a tuple whose fields fit."""

    def __init__(self, patterns: Optional[Sequence[Pattern]] = None):
        self.patterns = list(patterns or [])

    def _row(self) -> List[Any]:
        return ["tuple", [p._row() for p in self.patterns]]


def _pattern(row: Sequence[Any]) -> Pattern:
    if row[0] == "var":
        return PatternVar(row[1])
    if row[0] == "tuple":
        return PatternTuple([_pattern(p) for p in row[1]])
    if row[0] == "ctor":
        return PatternConstructor(call("node_ctor", WORLD, row[1], row[2]), [_pattern(p) for p in row[3]])
    return PatternWildcard()


class Clause:
    """A pattern and what the match gives where it fits."""

    def __init__(self, lhs: Pattern, rhs: Any):
        self.lhs, self.rhs = lhs, as_expr(rhs)


@register_object("node", "match")
class Match(RelayExpr):
    """The first clause that fits; a value that none fits stops the run."""

    def __init__(self, data: Any, clauses: Sequence[Clause], complete: bool = True):
        self._adopt(call("node_match", WORLD, as_expr(data), [c.lhs._row() for c in clauses], [c.rhs for c in clauses]))

    data = property(lambda self: call("node_args", self)[0], doc="what is matched")
    clauses = property(
        lambda self: [Clause(_pattern(p), body) for p, body in call("match_fields", self)], doc="its clauses"
    )
