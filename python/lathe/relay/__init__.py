"""The model as a graph: expressions, operators, passes, import, build.

Names and arguments are those of TVM's relay."""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import (
    adt, analysis, backend, dataflow_pattern, expr, expr_functor, frontend, function, loops, op, param_dict, prelude,
    scope_builder, transform, ty, type_functor,
)
from .adt import Clause, Constructor, GlobalTypeVar, Match, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard, TypeCall, TypeData, TypeVar
from .analysis import all_vars, free_vars, post_order_visit
from ..runtime.params import load_param_dict, save_param_dict
from .build_module import bind_params_by_name, build, create_executor, optimize
from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    bind,
    const,
    var,
)
from .expr_functor import ExprFunctor, ExprMutator, ExprVisitor
from .op import annotation
from .prelude import Prelude
from .scope_builder import ScopeBuilder
from .type_functor import TypeFunctor, TypeMutator, TypeVisitor
from .op.functions import OVERRIDES as _OVERRIDES
from .op.table import _absent, install as _install
from .parser import fromtext, parse, parse_expr
from .transform import build_config
from .ty import Any_ as Any
from .ty import FuncType, IncompleteType, OptionalType, SequenceType, TensorType, TupleType, Type, scalar_type

globals()["__getattr__"] = _absent(__name__)  # (a type checker would take a definition for a promise of every name)
_install(_sys.modules[__name__], _OVERRIDES)

from . import collage, quantize, testing, vm  # noqa: E402  (networks are made of the functions above)

__all__ = [
    "Any", "Call", "Clause", "Constant", "Constructor", "Expr", "ExprFunctor", "ExprMutator", "ExprVisitor",
    "FuncType", "Function", "GlobalTypeVar", "GlobalVar", "If", "IncompleteType", "Let", "Match", "OptionalType", "Pattern",
    "PatternConstructor", "PatternTuple", "PatternVar", "PatternWildcard", "Prelude", "RelayExpr", "ScopeBuilder",
    "SequenceType",
    "TensorType", "Tuple", "TupleGetItem", "TupleType", "TupleWrapper", "Type", "TypeCall", "TypeData",
    "TypeFunctor", "TypeMutator", "TypeVar", "TypeVisitor", "Var", "adt", "all_vars", "analysis",
    "annotation", "backend", "bind", "bind_params_by_name", "build", "const",
    "create_executor", "dataflow_pattern", "expr", "expr_functor", "free_vars", "fromtext", "frontend", "function",
    "load_param_dict", "loops", "op", "optimize", "param_dict", "parse", "parse_expr", "post_order_visit", "prelude",
    "quantize", "save_param_dict", "scalar_type", "scope_builder", "testing", "transform", "ty", "type_functor", "var",
]

if _TYPE_CHECKING:  # what _install puts here, as the stubs of tools/stubs.py have it
    from . import _operators
    from ._operators import *  # noqa: F403

    __all__ += _operators.__all__
