"""Gradients of graphs: a function becomes one that gives its result and the gradient of each parameter.

Backwards through the graph: every node gets the gradient of the result (ones, where the result is a tensor) with
respect to it, from the nodes that use it.  What comes out is a graph like any other: it is optimised and compiled, and
its gradient can be taken in turn."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .. import error
from .._ffi import call
from .._ir.module import IRModule
from .._ir.transform import BuiltinPass, Pass, module_pass
from .analysis import free_vars
from .expr import Call, Function, GlobalVar, If, Let, Op, RelayExpr, Tuple, TupleGetItem, Var, bind, call_op
from .expr_functor import ExprMutator
from .op.gradients import RULES
from .ty import TupleType

Gradient = Any  # an expression; a list of gradients, for a tuple; None: nothing comes back


class _Flat(ExprMutator):
    """let and calls of functions put into their places; branches stay."""

    def __init__(self, mod: Optional[IRModule]):
        super().__init__()
        self.mod, self.open = mod, []  # type: ignore[var-annotated]

    def visit_let(self, let: Let) -> RelayExpr:
        while isinstance(let, Let):
            self.memo_map[let.var] = self.visit(let.value)
            let = let.body
        return self.visit(let)

    def visit_call(self, call: Call) -> RelayExpr:  # pylint: disable=redefined-outer-name
        if isinstance(call.op, Op):
            return super().visit_call(call)
        fn, name = self.visit(call.op), None
        if isinstance(fn, GlobalVar):
            name = fn.name_hint
            if name in self.open:
                raise error.UnsupportedError(f"@{name} calls itself; gradients of recursive functions are not taken")
            fn = self.mod[name]
        if not isinstance(fn, Function):
            raise error.UnsupportedError(f"a gradient goes through operators and functions, not through a call of {fn}")
        self.open.append(name)
        body = self.visit(bind(fn.body, dict(zip(fn.params, [self.visit(a) for a in call.args]))))
        self.open.pop()
        return body

    def visit_function(self, fn: Function) -> RelayExpr:
        return fn

    def visit_global_var(self, gv: Any) -> Any:
        return gv


def _parts(node: RelayExpr) -> Sequence[RelayExpr]:
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Tuple):
        return node.fields
    return [node.tuple_value] if isinstance(node, TupleGetItem) else []


def _order(body: RelayExpr) -> List[RelayExpr]:
    """Every node behind those that it is made of."""
    done: Dict[RelayExpr, None] = {}
    todo = [(body, False)]
    while todo:
        node, seen = todo.pop()
        if node in done:
            continue
        if seen:
            done[node] = None
        else:
            todo += [(node, True)] + [(p, False) for p in _parts(node)]
    return list(done)


def _added(a: Gradient, b: Gradient) -> Gradient:
    if a is None or b is None:
        return b if a is None else a
    return [_added(x, y) for x, y in zip(a, b)] if isinstance(a, list) else a + b


def _of_type(g: Gradient, t: Any, node: RelayExpr) -> Gradient:
    """g with zeros for what nothing comes back to."""
    if isinstance(t, TupleType):
        fields = g if isinstance(g, list) else [None] * len(t.fields)
        return [_of_type(f, ft, node[i]) for i, (f, ft) in enumerate(zip(fields, t.fields))]
    return call_op("zeros_like", [node]) if g is None else g


def _as_expr(g: Gradient) -> RelayExpr:
    return Tuple([_as_expr(x) for x in g]) if isinstance(g, list) else g


def _seed(node: RelayExpr, t: Any) -> Gradient:
    if isinstance(t, TupleType):
        return [_seed(node[i], f) for i, f in enumerate(t.fields)]
    return call_op("ones_like", [node])


def _through_call(node: Call, g: Gradient) -> Sequence[Gradient]:
    name = node.op.name
    if name not in RULES:
        raise error.UnsupportedError(f'{name} has no gradient; relay.op.register_gradient("{name}", rule) gives it one')
    found = list(RULES[name](node, _of_type(g, node.checked_type, node)))
    if len(found) != len(node.args):
        raise error.ArgumentError(f"the gradient of {name} gives {len(found)} results for {len(node.args)} arguments")
    return found


def _through_if(node: If, g: Gradient) -> Dict[RelayExpr, Gradient]:
    """The gradients of the variables that the branches use, by the branch that was taken."""
    variables = [v for v in free_vars(Tuple([node.true_branch, node.false_branch]))]
    if not variables:
        return {}
    sides = []
    for branch in (node.true_branch, node.false_branch):
        found = _backward(branch, g)
        sides.append(Tuple([_as_expr(_of_type(found.get(v), v.checked_type, v)) for v in variables]))
    chosen = If(node.cond, *sides)
    return {v: _taken_apart(chosen[i], v.checked_type) for i, v in enumerate(variables)}


def _taken_apart(node: RelayExpr, t: Any) -> Gradient:
    return [_taken_apart(node[i], f) for i, f in enumerate(t.fields)] if isinstance(t, TupleType) else node


def _backward(body: RelayExpr, seed: Gradient) -> Dict[RelayExpr, Gradient]:
    """The gradient of each node of body that has one."""
    found: Dict[RelayExpr, Gradient] = {body: seed}

    def give(node: RelayExpr, g: Gradient) -> None:
        if g is not None:
            found[node] = _added(found.get(node), g)

    for node in reversed(_order(body)):
        g = found.get(node)
        if g is None:
            continue
        if isinstance(node, Call):
            for a, ga in zip(node.args, _through_call(node, g)):
                give(a, ga)
        elif isinstance(node, Tuple):
            for f, gf in zip(node.fields, g):
                give(f, gf)
        elif isinstance(node, TupleGetItem):
            rest: List[Gradient] = [None] * len(node.tuple_value.checked_type.fields)
            rest[node.index] = g
            give(node.tuple_value, rest)
        elif isinstance(node, If):
            for v, gv in _through_if(node, g).items():
                give(v, gv)
    return found


def _typed(fn: Function, mod: Optional[IRModule]) -> Function:
    if mod is None:
        called = [n.name_hint for n in call("node_post_order", fn) if isinstance(n, GlobalVar)]
        if called:
            raise error.ArgumentError(
                f"the function calls @{called[0]}: give the module that has it, gradient(expr, mod)"
            )
    holder = IRModule() if mod is None else IRModule(dict(mod.functions))
    holder["gradient_of"] = fn
    return BuiltinPass("InferType", {})(holder)["gradient_of"]


def gradient(expr: Any, mod: Optional[IRModule] = None, mode: str = "higher_order") -> Function:
    """The function (a, b) -> (result, (gradient of a, gradient of b)) for a function (a, b) -> result.

    Both of TVM's modes give the same here: branches are followed, functions that are called are put in their places,
    and the result is an ordinary function whose gradient can be taken again."""
    if mode not in ("first_order", "higher_order"):
        raise error.ArgumentError(f"the mode of a gradient is 'first_order' or 'higher_order', not '{mode}'")
    if isinstance(expr, GlobalVar):
        if mod is None:
            raise error.ArgumentError(f"@{expr.name_hint} is a name: give the module that has it, gradient(expr, mod)")
        expr = mod[expr.name_hint]
    if not isinstance(expr, Function):
        raise error.TypeError(f"a gradient is taken of a function, not of {type(expr).__name__}")
    typed = _typed(expr, mod)
    body = _Flat(mod).visit(typed.body)
    found = _backward(body, _seed(body, body.checked_type))
    gradients = [_as_expr(_of_type(found.get(p), p.checked_type, p)) for p in typed.params]
    return Function(typed.params, Tuple([body, Tuple(gradients)]))


def FirstOrderGradient() -> Pass:  # noqa: N802  # pylint: disable=invalid-name
    """A pass that puts the gradient in the place of every function."""

    def run(mod: IRModule, _ctx: Any) -> IRModule:
        made = {gv: gradient(fn, mod) if isinstance(fn, Function) else fn for gv, fn in mod.functions.items()}
        return IRModule(made)

    return module_pass(run, opt_level=0, name="FirstOrderGradient")
