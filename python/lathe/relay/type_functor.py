"""Walking and rewriting types in Python: visit_<kind> for each kind of type."""

from __future__ import annotations

from typing import Any

from .. import error
from .adt import TypeCall, TypeVar
from .ty import FuncType, OptionalType, SequenceType, TensorType, TupleType


class TypeFunctor:
    """Dispatch on the kind of type."""

    def visit(self, typ: Any) -> Any:
        """The result for a type."""
        for cls, method in (
            (TypeVar, self.visit_type_var),
            (TensorType, self.visit_tensor_type),
            (TupleType, self.visit_tuple_type),
            (FuncType, self.visit_func_type),
            (TypeCall, self.visit_type_call),
            (SequenceType, self.visit_sequence_type),
            (OptionalType, self.visit_optional_type),
        ):
            if isinstance(typ, cls):
                return method(typ)
        raise error.TypeError(f"a {type(typ).__name__} is not a type of graph values")

    def visit_type_var(self, _: Any) -> Any:
        raise NotImplementedError()

    visit_tensor_type = visit_tuple_type = visit_func_type = visit_type_call = visit_type_var
    visit_sequence_type = visit_optional_type = visit_type_var


class TypeVisitor(TypeFunctor):
    """Visits every type inside a type; override what you want to see."""

    def visit_type_var(self, tv: TypeVar) -> None: ...

    def visit_tensor_type(self, tt: TensorType) -> None: ...

    def visit_tuple_type(self, tt: TupleType) -> None:
        for field in tt.fields:
            self.visit(field)

    def visit_func_type(self, ft: FuncType) -> None:
        for t in ft.arg_types:
            self.visit(t)
        self.visit(ft.ret_type)

    def visit_type_call(self, tc: TypeCall) -> None:
        for t in tc.args:
            self.visit(t)

    def visit_sequence_type(self, st: SequenceType) -> None:
        self.visit(st.element)

    visit_optional_type = visit_sequence_type


class TypeMutator(TypeFunctor):
    """Rebuilds types from what their parts became."""

    def visit_type_var(self, tv: TypeVar) -> Any:
        return tv

    def visit_tensor_type(self, tt: TensorType) -> Any:
        return tt

    def visit_tuple_type(self, tt: TupleType) -> Any:
        return TupleType([self.visit(f) for f in tt.fields])

    def visit_func_type(self, ft: FuncType) -> Any:
        return FuncType([self.visit(t) for t in ft.arg_types], self.visit(ft.ret_type))

    def visit_type_call(self, tc: TypeCall) -> Any:
        return TypeCall(tc.func, [self.visit(t) for t in tc.args])

    def visit_sequence_type(self, st: SequenceType) -> Any:
        return type(st)(self.visit(st.element))

    visit_optional_type = visit_sequence_type
