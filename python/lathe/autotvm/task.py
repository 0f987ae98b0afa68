"""Templates, tasks, and which configuration a template gets."""

from __future__ import annotations

import functools
import math
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar, cast

from .. import error, tuning
from .._ir.transform import PassContext
from ..target import Target, resolve
from .space import ConfigEntity, ConfigSpace, FallbackConfigEntity

_F = TypeVar("_F", bound=Callable[..., Any])
TASK_TABLE: Dict[str, Callable[..., Any]] = {}
_local = threading.local()


# ---- contexts: who decides


class DispatchContext:
    """Says which configuration a template gets for its arguments; the innermost one that knows decides."""

    @staticmethod
    def stack() -> List["DispatchContext"]:
        """The contexts of this thread, outermost first."""
        if not hasattr(_local, "stack"):
            _local.stack = [FallbackContext()]
        return _local.stack

    @classmethod
    def current_context(cls) -> "DispatchContext":
        """The innermost."""
        return cls.stack()[-1]

    def _query_inside(self, _target: Any, _workload: Tuple[Any, ...]) -> Any:
        return None

    def query(self, target: Any, workload: Tuple[Any, ...]) -> Any:
        """The configuration of the innermost context that has one."""
        for context in reversed(self.stack()):
            found = context._query_inside(target, workload)
            if found is not None:
                return found
        raise error.ArgumentError("no context has a configuration")

    def __enter__(self) -> "DispatchContext":
        self.stack().append(self)
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.stack().remove(self)


class FallbackContext(DispatchContext):
    """The first of each choice."""

    def _query_inside(self, _target: Any, _workload: Tuple[Any, ...]) -> Any:
        return FallbackConfigEntity()


class ApplyConfig(DispatchContext):
    """One configuration for whatever is asked."""

    def __init__(self, config: Any):
        self._config = config

    def _query_inside(self, _target: Any, workload: Tuple[Any, ...]) -> Any:
        self.workload = workload
        return self._config


class _Asked(threading.local):
    config: Any = None


_asked = _Asked()


def get_config() -> Any:
    """Inside of a template: what its knobs are."""
    if _asked.config is None:
        raise error.ArgumentError("get_config is for the body of an autotvm.template")
    return _asked.config


def args_to_workload(args: Sequence[Any], task_name: str) -> Tuple[Any, ...]:
    """The name of a task with its arguments, as logs have it."""

    def plain(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return tuple(plain(v) for v in x)
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        return str(x)

    return (task_name, *(plain(a) for a in args))


def template(task_name: str, func: Optional[Callable[..., Any]] = None) -> Callable[[_F], _F]:
    """Decorator: a function that makes a schedule and its arguments, and asks get_config() for what it leaves open."""

    def decorate(f: _F) -> _F:
        @functools.wraps(f)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise error.ArgumentError(f"template '{task_name}' takes its arguments by position")
            workload = args_to_workload(args, task_name)
            target = Target.current(allow_none=True)
            outer = _asked.config
            _asked.config = DispatchContext.current_context().query(target, workload)
            try:
                return f(*args)
            finally:
                _asked.config = outer

        if task_name in TASK_TABLE:
            raise error.ArgumentError(f"there is a template '{task_name}' already")
        TASK_TABLE[task_name] = wrapper
        return cast(_F, wrapper)

    if func is not None:
        decorate(func)
    return decorate


# ---- tasks


class Task:
    """A template with its arguments: what is tuned."""

    #: The configuration that there is without tuning; it is measured first.
    start: Optional[int] = None

    def __init__(self, name: str, args: Sequence[Any], target: Any):
        self.name, self.args, self.kwargs = name, tuple(args), {}
        self.target = resolve(target)
        self.target_host = None
        if name not in TASK_TABLE:
            raise error.ArgumentError(
                f"there is no template '{name}'; those there are: {', '.join(TASK_TABLE) or 'none'}"
            )
        self.func = TASK_TABLE[name]
        self.config_space = ConfigSpace()
        with ApplyConfig(self.config_space), self.target:
            sch, _ = self.func(*self.args)
        self.config_space.is_collecting = False
        self.flop = self.config_space.flop or compute_flop(sch)

    @property
    def workload(self) -> Tuple[Any, ...]:
        """Its name and arguments."""
        return args_to_workload(self.args, self.name)

    def instantiate(self, config: ConfigEntity) -> Tuple[Any, Any]:
        """The schedule and the arguments of one configuration."""
        config.flop, config.errors = 0.0, []
        with ApplyConfig(config), self.target:
            sch, args = self.func(*self.args)
        return sch, args

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


class KernelTask(Task):
    """A kernel of a network: its configurations are the plans that Lathe has for it.

    Its name is the operator's, its one argument the workload's, which has shapes, attributes and target in it."""

    def __init__(self, kernel: tuning.Task, target: Target):  # pylint: disable=super-init-not-called
        self.name, self.args, self.kwargs = kernel.workload.rsplit("-", 1)[0], (kernel.workload,), {}
        self.target, self.target_host = target, None
        self.kernel, self.flop = kernel, kernel.flops
        self.config_space = ConfigSpace()
        self.config_space.define_knob("plan", [plan for plan, _seconds in kernel.plans])
        self.config_space.define_knob("base", [kernel.base])
        self.config_space.is_collecting = False
        self.start = [plan for plan, _seconds in kernel.plans].index(kernel.base)

    def instantiate(self, config: ConfigEntity) -> Tuple[Any, Any]:
        raise error.UnsupportedError("a kernel of a network has plans, not a schedule of a tensor expression")

    def __repr__(self) -> str:
        return f"Task({self.kernel.what}, {len(self.config_space)} plans)"


def extract_from_program(
    mod: Any, params: Any, target: Any, target_host: Any = None, ops: Optional[Sequence[Any]] = None
) -> List[KernelTask]:
    """The kernels of a network that have a choice of plans; ops: of these operators alone."""
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[Any], params: Sequence[Any], target: Any, target_host: Any = None,
    ops: Optional[Sequence[Any]] = None,
) -> List[KernelTask]:
    """The same over several networks; what two of them have in common is there once."""
    t = resolve(Target(target, target_host) if target_host is not None else target)
    wanted = None if ops is None else {getattr(op, "name", op) for op in ops}
    found: Dict[str, KernelTask] = {}
    for mod, given in zip(mods, params):
        with PassContext(opt_level=3):
            for kernel in tuning.extract_tasks(mod, t, given):
                task = KernelTask(kernel, t)
                if wanted is None or task.name in wanted:
                    found.setdefault(kernel.workload, task)
    return list(found.values())


def create(task_name: Any, args: Sequence[Any], target: Any, target_host: Any = None) -> Task:
    """The task of a template (or its name) for these arguments."""
    if callable(task_name):
        task_name = next((n for n, f in TASK_TABLE.items() if f is task_name), getattr(task_name, "__name__", ""))
    if target_host is not None:
        target = Target(target, target_host)
    return Task(task_name, args, target)


def compute_flop(sch: Any) -> float:
    """An estimate: two operations for each step of a sum, one for each other element."""
    flop = 0.0
    for stage in sch.stages:
        op = stage.op
        if not getattr(op, "axis", None) or not hasattr(op, "body"):
            continue
        steps = math.prod(int(a.dom.extent) for a in op.axis)
        sums = math.prod(int(a.dom.extent) for a in getattr(op, "reduce_axis", ()) or ())
        flop += steps * (2 * sums if getattr(op, "reduce_axis", None) else 1)
    return flop
