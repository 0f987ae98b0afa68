"""From a model to one with functions of an external compiler: the usual order of passes."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .... import error
from ...._ffi import call
from .register import get_pattern_table, takers


def partition_for(
    compiler: Union[str, Sequence[str]], mod: Any, params: Optional[Dict[str, Any]] = None, mod_name: str = "default",
    *, cost: Any = None, target: Any = None, merge: bool = True,
) -> Any:  # fmt: skip
    """The model with what the compiler takes as functions of it; of several compilers the first that takes something
    has it.  Parameters become constants, which such functions can hold; what a normalisation does goes into the
    weights before it.

    With a cost the compiler gets only what it is faster at: "measured" on this machine for the target, or an estimator
    of lathe.relay.collage.  Estimators keep what they found as `choice`.  merge: regions of one compiler that read each
    other become one function."""
    from ...build_module import as_module

    names = [compiler] if isinstance(compiler, str) else list(compiler)
    mod = _merged(as_module(mod, params), names)
    if cost is None:
        return _offloaded(mod, names, mod_name, merge)
    return _chosen(mod, names, mod_name, merge, cost, target)


def _merged(mod: Any, names: Sequence[str]) -> Any:
    """The model simplified, with composites."""
    from ... import transform

    table = [row for name in names for row in get_pattern_table(name)]
    passes = [
        transform.InferType(),  # type: ignore[attr-defined]
        transform.SimplifyInference(),
        transform.DynamicToStatic(),
        transform.FoldConstant(),
        transform.SimplifyExpr(),
        transform.FoldScaleAxis(),
        transform.FoldConstant(),
        transform.MergeComposite(table),
    ]
    for p in passes:
        mod = p(mod)
    return mod


def _offloaded(
    mod: Any, names: Sequence[str], mod_name: str, merge: bool, wanted: Optional[Callable[[str, Any], bool]] = None
) -> Any:
    """Composites, and operators that a compiler takes, as functions of the module."""
    from ... import transform

    mod = transform.AnnotateTarget(names, wanted=wanted)(mod)
    if merge:
        mod = transform.MergeCompilerRegions()(mod)
    return transform.PartitionGraph(mod_name)(mod)


def _kernels(mod: Any, names: Sequence[str]) -> List[Tuple[str, Any]]:
    """What the compilers could take of the main function, each with the one that has it."""
    from ... import collage
    from ...analysis import post_order_visit
    from ...expr import Call, Op

    inside: Any = set()
    found: List[Tuple[str, Any]] = []
    rules = {name: takers(name) for name in names}

    def owner(e: Any) -> Optional[str]:
        composite = collage.composite_name(e)
        for name in names:
            if composite.startswith(name + "."):
                return name
            if not composite and isinstance(e.op, Op) and e.op.name in rules[name] and rules[name][e.op.name](e):
                return name
        return None

    def enter(e: Any) -> None:
        if collage.composite_name(e):
            post_order_visit(e.op.body, inside.add)

    def visit(e: Any) -> None:
        name = owner(e) if isinstance(e, Call) and e not in inside else None
        if name is not None:
            found.append((name, e))

    post_order_visit(mod["main"], enter)
    post_order_visit(mod["main"], visit)
    return found


def _chosen(mod: Any, names: Sequence[str], mod_name: str, merge: bool, cost: Any, target: Any) -> Any:
    """What the compilers are faster at as functions of the module."""
    from ... import collage
    from ...transform import InferType  # type: ignore[attr-defined]

    if cost == "measured":
        cost = collage.CostEstimator()
    if not isinstance(cost, collage.CostEstimator):
        raise error.ArgumentError("partition_for: cost is \"measured\" or an estimator of lathe.relay.collage")

    def without(lost: Callable[[Any], bool]) -> Any:
        out = call("module_copy", mod)
        out["main"] = collage.inline_composites(mod["main"], lost)
        return InferType()(out)

    one = lambda name, m: _offloaded(m, [name], mod_name, merge)  # noqa: E731
    kernels = _kernels(mod, names)
    choice = cost.choice = collage.weigh(kernels, cost, target, one)
    candidates = [without(lambda e: True)]
    won = sum(choice.taken(name, e) for name, e in kernels)
    if won:
        owners = {e: name for name, e in kernels}
        lost = without(lambda e: e in owners and not choice.taken(owners[e], e))
        candidates.append(_offloaded(lost, names, mod_name, merge, choice.taken))
    if won < len(kernels):
        candidates.append(_offloaded(mod, names, mod_name, merge))
    return collage.cheapest(candidates, cost, target, choice, "/".join(names))


def static_float(*exprs: Any) -> bool:
    """Are these tensors of float32 and of known sizes?"""
    from ...ty import TensorType

    for e in exprs:
        t = e.checked_type
        if not isinstance(t, TensorType) or t.dtype != "float32":
            return False
        if not all(isinstance(getattr(d, "value", d), int) for d in t.shape):
            return False
    return True
