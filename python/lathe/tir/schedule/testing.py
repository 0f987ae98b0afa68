"""What tests of schedules compare: programs up to the name they are called by, and traces that are replayed."""

from __future__ import annotations

from typing import Any, Sequence, Union

from ... import error
from ..._ir.compare import assert_structural_equal
from ..._ir.module import IRModule
from ..function import PrimFunc
from .schedule import Schedule
from .trace import Trace

__all__ = ["assert_structural_equal_ignore_global_symbol", "verify_trace_roundtrip"]


def _unnamed(f: Any) -> Any:
    return f.without_attr("global_symbol") if isinstance(f, PrimFunc) else f


def assert_structural_equal_ignore_global_symbol(
    lhs: Union[PrimFunc, IRModule], rhs: Union[PrimFunc, IRModule], *args: Any, **kwargs: Any
) -> None:
    """Raises ValueError unless both are structurally equal, whatever symbol the functions have."""
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        lhs, rhs = (IRModule({v.name_hint: _unnamed(f) for v, f in m.functions.items()}) for m in (lhs, rhs))
    assert_structural_equal(_unnamed(lhs), _unnamed(rhs), *args, **kwargs)


def verify_trace_roundtrip(
    sch: Schedule,
    mod: Union[PrimFunc, IRModule],
    *,
    debug_mask: Union[str, int] = "all",
    text_format: Union[str, Sequence[str]] = ("python", "json"),
    enable_check: bool = True,
) -> Schedule:
    """Replays the schedule's trace on the program it began with, out of each of its texts; the programs must be equal,
    and so must the texts of the new traces.  Gives the last of the new schedules."""
    again = sch
    for form in [text_format] if isinstance(text_format, str) else text_format:
        if form not in ("python", "json"):
            raise error.ArgumentError(f'verify_trace_roundtrip: text_format is "python" or "json", not {form!r}')
        again = Schedule(mod, debug_mask=debug_mask)
        if form == "json":
            Trace.apply_json_to_schedule(sch.trace.as_json(), again)
        else:
            steps = "\n".join(sch.trace.as_python())
            exec(compile(steps, "<trace>", "exec"), {"sch": again})  # pylint: disable=exec-used
        assert_structural_equal(again.mod, sch.mod)
        if str(again.trace) != str(sch.trace):
            raise error.ArgumentError(f"the trace reads\n{sch.trace}\nand, replayed from {form},\n{again.trace}")
    return again
