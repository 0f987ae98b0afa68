"""Which parts of a model an external compiler gets when it shall have only what it is faster at.

Each kernel that the compiler could take is computed both ways on its own, and goes to the compiler where that costs
less.  Kernels of a model touch each other (what lies between two of one compiler stays as it likes it), so the
whole model decides in the end: with nothing of the compiler, with the kernels that won, with all that it takes.  The
cheapest of the three is the answer, so that a model is never made slower by what was measured.

A CostEstimator measures; a CustomCostEstimator asks a function, a table of predictions for instance."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from .. import error
from .._ffi import WORLD, call
from .._ir.module import IRModule
from .analysis import post_order_visit
from .expr import Call, Constant, Function, RelayExpr, bind, var
from .ty import TensorType


_SHORTEST = 1e-4  # seconds: shorter ones are not measured alone


def _seconds(run: Callable[[], None], n: int) -> float:
    """Of one of n runs."""
    start = time.perf_counter()
    for _ in range(n):
        run()
    return (time.perf_counter() - start) / n


class CostEstimator:
    """Seconds of one run of a module's main, measured on this machine: modules that are compared run in turns, several
    rounds of about `seconds`, and the shortest run counts, which other programs on the machine disturb least.

    inputs: values by name for the inputs of the model; others are random numbers, integers 0."""

    def __init__(self, inputs: Optional[Dict[str, Any]] = None, rounds: int = 7, seconds: float = 0.02):
        self.inputs, self.rounds, self.seconds = dict(inputs or {}), rounds, seconds
        self.choice: Optional["Choice"] = None  # what was found for the last model

    def estimate(self, mod: IRModule, target: Any) -> float:
        """What one run costs."""
        return self.compare([mod], target)[0]

    def compare(self, mods: Sequence[IRModule], target: Any) -> List[float]:
        """What each costs; the numbers are good for a comparison."""
        runs = [self._runner(m, target) for m in mods]
        for run in runs:
            run()
        best = [min(_seconds(run, 1) for _ in range(3)) for run in runs]
        together = [max(1, int(_SHORTEST / max(b, 1e-7))) for b in best]  # runs that the clock is read for
        times = [max(1, int(self.seconds / max(b * n, 1e-7))) for b, n in zip(best, together)]
        for _ in range(self.rounds):
            for i, run in enumerate(runs):
                best[i] = min(best[i], min(_seconds(run, together[i]) for _ in range(times[i])))
        return best

    def _runner(self, mod: IRModule, target: Any) -> Callable[[], None]:
        from .build_module import build

        executor = build(mod, target)["default"]().executor
        rng = np.random.default_rng(0)
        for i, p in enumerate(mod["main"].params):
            value = self.inputs.get(p.name_hint)
            executor.set_input(i, _some_value(p, rng) if value is None else value)
        return executor.run


class CustomCostEstimator(CostEstimator):
    """Asks fn(mod, target), whose numbers are compared with each other."""

    def __init__(self, py_fn_estimator: Callable[[IRModule, Any], float]):
        super().__init__()
        self._fn = py_fn_estimator

    def compare(self, mods: Sequence[IRModule], target: Any) -> List[float]:
        return [float(self._fn(m, target)) for m in mods]


class Weighed(NamedTuple):
    """A row of a report: what was compared, and the costs."""

    name: str  # of the composite or operator; "model" for the whole
    compiler: str
    times: int  # kernels that are alike
    ours: float
    external: float
    taken: bool


class Choice:
    """What weigh found: taken(compiler, call) says it of a kernel, report lists it."""

    def __init__(self) -> None:
        self.report: List[Weighed] = []
        self._lost: Set[Any] = set()

    def lose(self, key: Any) -> None:
        """Kernels with this key stay with Lathe."""
        self._lost.add(key)

    def taken(self, compiler: str, kernel: Call) -> bool:
        """Does the compiler get this kernel?"""
        return (compiler, key_of(kernel)) not in self._lost

    def table(self) -> str:
        """The report as text."""
        rows = [f"{'kernel':40} {'times':>5} {'lathe':>10} {'external':>10}"]
        for r in self.report:
            mark = r.compiler if r.taken else "lathe"
            rows.append(f"{r.name:40} {r.times:5} {r.ours * 1e6:8.1f}us {r.external * 1e6:8.1f}us  {mark}")
        return "\n".join(rows)


def _sizes(t: Any) -> Optional[Tuple[int, ...]]:
    if not isinstance(t, TensorType):
        return None
    found = tuple(getattr(d, "value", d) for d in t.shape)
    return found if all(isinstance(d, int) for d in found) else None


def _some_value(p: Any, rng: Any) -> Any:
    shape = _sizes(p.checked_type)
    if shape is None:
        raise error.ArgumentError(
            f"a model is measured with inputs of known sizes; '{p.name_hint}' is {p.checked_type}: give a value "
            f"for it, CostEstimator(inputs={{'{p.name_hint}': …}})"
        )
    dtype = p.checked_type.dtype
    if dtype.startswith(("float", "bfloat")):
        return rng.standard_normal(shape).astype("float32" if dtype.startswith("bfloat") else dtype)
    return np.zeros(shape, dtype)


def composite_name(e: Any) -> str:
    """The name of the composite function that is called; nothing for another expression."""
    inner = isinstance(e, Call) and isinstance(e.op, Function)
    return str((e.op.attrs or {}).get("Composite", "")) if inner else ""


def key_of(kernel: Call) -> Any:
    """Equal for kernels that cost the same: the same operators with the same attributes over tensors of the same
    types."""
    inside: List[Any] = []

    def visit(e: Any) -> None:
        if isinstance(e, Call):
            inside.append((e.op.name, sorted((k, str(v)) for k, v in dict(e.attrs or {}).items())))

    if composite_name(kernel):
        post_order_visit(kernel.op.body, visit)
    else:
        visit(kernel)
    args = [(str(a.checked_type), isinstance(a, Constant)) for a in kernel.args]
    return str((composite_name(kernel), inside, args))


def inline_composite(kernel: Call) -> RelayExpr:
    """The call of a composite function as the operators in it."""
    return bind(kernel.op.body, dict(zip(kernel.op.params, kernel.args)))


def inline_composites(func: Function, which: Callable[[Call], bool]) -> Function:
    """The function with the composites that `which` names as the operators in them."""
    now: Dict[Any, Any] = {}

    def visit(e: Any) -> None:
        parts = call("node_args", e) if isinstance(e, RelayExpr) else []
        new = [now.get(p, p) for p in parts]
        changed = any(not a.same_as(b) for a, b in zip(parts, new))
        made = call("node_with_args", WORLD, e, new) if changed else e
        now[e] = inline_composite(made) if composite_name(e) and which(e) else made

    post_order_visit(func, visit)
    return now[func]


def _alone(kernel: Call) -> Optional[Function]:
    """The kernel as a function of its operands that are not constant; None: it cannot be measured alone."""
    if any(_sizes(a.checked_type) is None for a in kernel.args):
        return None
    params = {a: var(f"x{i}", a.checked_type) for i, a in enumerate(kernel.args) if not isinstance(a, Constant)}
    args = [params.get(a, a) for a in kernel.args]
    return Function(list(params.values()), call("node_with_args", WORLD, kernel, [*_callee(kernel), *args]))


def _callee(kernel: Call) -> List[Any]:
    return [kernel.op] if composite_name(kernel) else []


def weigh(
    kernels: Sequence[Tuple[str, Call]], cost: CostEstimator, target: Any, offload: Callable[[str, IRModule], IRModule]
) -> Choice:
    """Both ways for each of (compiler, kernel); offload(compiler, mod) gives main's kernels to the compiler."""
    choice, groups = Choice(), {}  # type: Choice, Dict[Any, List[Tuple[str, Call]]]
    for compiler, kernel in kernels:
        groups.setdefault((compiler, key_of(kernel)), []).append((compiler, kernel))
    for key, alike in groups.items():
        compiler, kernel = alike[0]
        func = _alone(kernel)
        if func is None:
            continue
        ours = IRModule.from_expr(inline_composites(func, lambda _e: True))
        a, b = cost.compare([_typed(ours), offload(compiler, _typed(IRModule.from_expr(func)))], target)
        name = composite_name(kernel) or kernel.op.name
        choice.report.append(Weighed(name, compiler, len(alike), a, b, b < a))
        if not b < a:
            choice.lose(key)
    return choice


def _typed(mod: IRModule) -> IRModule:
    from .._ir.transform import BuiltinPass

    return BuiltinPass("InferType", {})(mod)


def cheapest(
    candidates: Sequence[IRModule], cost: CostEstimator, target: Any, choice: Choice, compiler: str
) -> IRModule:
    """Of modules that compute the same the one that costs least; the first is the one without external functions."""
    costs = cost.compare(list(candidates), target)
    best = min(range(len(costs)), key=lambda i: costs[i])
    external = min(costs[1:]) if len(costs) > 1 else costs[0]
    choice.report.append(Weighed("model", compiler, 1, costs[0], external, best > 0))
    return candidates[best]


__all__ = ["Choice", "CostEstimator", "CustomCostEstimator", "Weighed"]
