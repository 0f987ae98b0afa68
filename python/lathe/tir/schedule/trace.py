"""Traces: what was done to a schedule, one instruction for each primitive.

The compiler keeps a trace as lines of Python text, which it also replays.  Here they are
read into instructions with TVM's fields, and instructions are written as such lines."""

from __future__ import annotations

import ast
import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from ... import error
from ..._ffi import Object, call, register_object
from ..expr import FloatImm, IntImm, StringImm
from ..function import TensorIntrin

if TYPE_CHECKING:
    from .schedule import Schedule


class _RV(Object):
    """Something that a schedule's primitives gave; stays valid while it exists.  One made without a schedule
    is a name for instructions made by hand."""

    def _id(self) -> int:
        return id(self) if self._h is None else super()._id()


@register_object("block")
class BlockRV(_RV):
    """A block of a schedule."""


@register_object("loop")
class LoopRV(_RV):
    """A loop of a schedule."""


@register_object("intrv")
class ExprRV(_RV):
    """An integer that a schedule chose."""


_LETTER = {BlockRV: "b", LoopRV: "l", ExprRV: "v"}


class _Text(str):
    """Source text of an argument that is no literal: a lambda, an expression of sizes."""


# ---- the table of the primitives


class Param(NamedTuple):
    """A parameter of a primitive."""

    name: str
    kind: str
    default: Any
    star: bool  # takes the remaining positional arguments

    @property
    def is_input(self) -> bool:
        """Does TVM count it among the inputs of an instruction, and not among the attributes?"""
        return bool(re.search(r"\b(block|loop|expr)\b", self.kind)) and self.kind != "expr?"

    @property
    def is_flat(self) -> bool:
        """Do its elements stand among the inputs themselves?"""
        return self.star or bool(re.fullmatch(r"list\[[^|]*\]", self.kind))


def _literal(text: str) -> Any:
    known = {"None": None, "True": True, "False": False}
    if text in known:
        return known[text]
    try:
        return int(text)
    except ValueError:
        return text.strip("\"'")


def parse_params(text: str) -> List[Param]:
    """The parameters in a row's text."""
    out = []
    for item in re.split(r",\s*(?![^\[]*\])", text) if text else []:
        m = re.fullmatch(r"(\*?)(\w+):\s*([^=]+?)(?:\s*=\s*(.+))?", item.strip())
        if m is None:
            raise error.InternalError(f"the signature '{text}' of a primitive does not read")
        star, name, kind, default = m.groups()
        out.append(Param(name, kind, inspect.Parameter.empty if default is None else _literal(default), bool(star)))
    return out


#: Parameters of TVM's methods that only have one meaning here: name -> accepted value.
FIXED: Dict[str, Dict[str, Any]] = {
    "split": {"disable_predication": False},
}

#: name, parameters, result and doc of each primitive.
ROWS: List[Tuple[str, List[Param], str, str]] = [
    (name, parse_params(args), result, doc) for name, args, result, doc in call("primitives")
]
_PARAMS: Dict[str, List[Param]] = {row[0]: row[1] for row in ROWS}


class InstructionKind:
    """A kind of instruction: a primitive under TVM's name for it (`GetBlock` is `get_block`)."""

    _all: Dict[str, "InstructionKind"] = {}

    def __init__(self, primitive: str):
        self.primitive = primitive
        self.name = "".join(part.capitalize() for part in primitive.split("_"))

    @property
    def is_pure(self) -> bool:
        """Does it leave the program as it is?"""
        return self.primitive.startswith(("get_", "sample_"))

    @property
    def is_postproc(self) -> bool:
        """Does it mark the start of postprocessing?"""
        return self.primitive == "enter_postproc"

    @staticmethod
    def get(name: str) -> "InstructionKind":
        """The kind with this name."""
        if name not in InstructionKind._all:
            raise error.ArgumentError(
                f"there is no instruction '{name}'; there are {', '.join(sorted(InstructionKind._all))}"
            )
        return InstructionKind._all[name]

    @staticmethod
    def of(primitive: str) -> "InstructionKind":
        """The kind of a primitive."""
        return InstructionKind.get(InstructionKind(primitive).name)

    def same_as(self, other: Any) -> bool:
        """The same kind?"""
        return self is other

    def __repr__(self) -> str:
        return f"InstructionKind({self.name})"


for _row in ROWS:
    _kind = InstructionKind(_row[0])
    InstructionKind._all[_kind.name] = _kind


class Instruction:
    """One step: a kind, what goes in (blocks, loops, numbers), constant attributes, what comes out."""

    def __init__(self, kind: InstructionKind, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]):
        self.kind, self.inputs, self.attrs, self.outputs = kind, list(inputs), list(attrs), list(outputs)

    def arguments(self, decision: Any = None) -> Tuple[List[Any], Dict[str, Any]]:
        """Its arguments as a Python call has them: by position, by name."""
        by_position: List[Any] = []
        by_name: Dict[str, Any] = {}
        params = _PARAMS[self.kind.primitive]
        fixed = FIXED.get(self.kind.primitive, {})
        inputs, attrs = list(self.inputs), list(self.attrs)
        after = sum(p.is_input and not p.is_flat for p in params)
        for p in params:
            if p.name == "decision":
                if decision is not None:
                    by_name["decision"] = decision
            elif not p.is_input:
                if attrs or p.default is inspect.Parameter.empty:
                    by_name[p.name] = self._take(attrs, p)
            elif p.is_flat:
                n = len(inputs) - after
                taken, inputs = inputs[:n], inputs[n:]
                if p.star:
                    by_position = taken
                else:
                    by_name[p.name] = taken
            else:
                after -= 1
                by_name[p.name] = self._take(inputs, p)
        by_name.update(zip(fixed, attrs))
        for p in params:
            if p.kind == "bool" and p.name in by_name:
                by_name[p.name] = bool(_plain(by_name[p.name]))
        for key, value in fixed.items():
            if key in by_name and isinstance(value, bool):
                by_name[key] = bool(_plain(by_name[key]))
        return by_position, by_name

    def same_as(self, other: Any) -> bool:
        """The same instruction?"""
        return self is other

    def _take(self, values: List[Any], p: Param) -> Any:
        if not values:
            raise error.ArgumentError(f"an instruction {self.kind.name} has no value for '{p.name}'")
        return values.pop(0)

    def text(self, names: "_Names", decision: Any = None, skip: Sequence[str] = ()) -> str:
        """The call as a line of Python."""
        by_position, by_name = self.arguments(decision)
        args = [names.value(v) for v in by_position] + [
            f"{k}={names.value(v)}" for k, v in by_name.items() if k not in skip
        ]
        line = f"sch.{self.kind.primitive}({', '.join(args)})"
        if not self.outputs:
            return line
        return f"{', '.join(names.new(v) for v in self.outputs)}{',' if names.is_list(self) else ''} = {line}"

    def __repr__(self) -> str:
        return self.text(_NoNames())


class _Names:
    """Names of what instructions give: b0, l1, v2, numbered as they come."""

    def __init__(self) -> None:
        self.by_id: Dict[int, str] = {}
        self._kept: List[Any] = []  # ids stay theirs while the objects live

    def new(self, rv: Any) -> str:
        self.by_id[rv._id()] = f"{_LETTER[type(rv)]}{len(self._kept)}"
        self._kept.append(rv)
        return self.by_id[rv._id()]

    def of(self, rv: Any) -> str:
        return self.by_id[rv._id()] if rv._id() in self.by_id else "_"

    def is_list(self, inst: Instruction) -> bool:
        row = next(r for r in ROWS if r[0] == inst.kind.primitive)
        return row[2].startswith("list") and len(inst.outputs) == 1

    def value(self, v: Any) -> str:
        if isinstance(v, _RV):
            return self.of(v)
        if isinstance(v, _Text):
            return str(v)
        if isinstance(v, str):
            return json.dumps(v, ensure_ascii=False)
        if isinstance(v, list):
            return "[" + ", ".join(self.value(x) for x in v) + "]"
        if isinstance(v, tuple):
            return "(" + ", ".join(self.value(x) for x in v) + ")"
        if isinstance(v, dict):
            return "{" + ", ".join(f"{self.value(str(k))}: {self.value(x)}" for k, x in v.items()) + "}"
        return repr(_plain(v))


class _NoNames(_Names):
    """An instruction alone does not know what its results are called."""

    def new(self, rv: Any) -> str:
        return "_"


def _plain(v: Any) -> Any:
    """Constants as Python values."""
    return v.value if isinstance(v, (IntImm, FloatImm, StringImm)) else v


class Trace:
    """What was done to a schedule, in order."""

    def __init__(self, insts: Sequence[Instruction], decisions: Optional[Dict[Instruction, Any]] = None):
        self.insts: List[Instruction] = list(insts)
        self.decisions: Dict[Instruction, Any] = dict(decisions or {})

    # ---- as a list of instructions

    def get_decision(self, inst: Instruction) -> Any:
        """What a sampling instruction chose, None for others."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Adds an instruction."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Optional[Instruction]:
        """Takes the last instruction away and gives it; None if there is none."""
        if not self.insts:
            return None
        inst = self.insts.pop()
        self.decisions.pop(inst, None)
        return inst

    def _upto_postproc(self, remove_postproc: bool) -> List[Instruction]:
        end = next((i for i, inst in enumerate(self.insts) if inst.kind.is_postproc), None) if remove_postproc else None
        return self.insts[:end]

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool = False) -> "Trace":
        """The same trace in which a sampling instruction chooses otherwise."""
        if inst not in self.insts:
            raise error.ArgumentError("with_decision: the instruction is none of this trace")
        kept = self._upto_postproc(remove_postproc)
        return Trace(kept, {**{i: d for i, d in self.decisions.items() if i in kept}, inst: decision})

    def simplified(self, remove_postproc: bool = False) -> "Trace":
        """Without the instructions that leave the program as it is and whose results nobody uses."""
        used: set = set()
        kept: List[Instruction] = []
        for inst in reversed(self._upto_postproc(remove_postproc)):
            if inst.kind.is_pure and not any(o._id() in used for o in inst.outputs):
                continue
            kept.insert(0, inst)
            used.update(rv._id() for rv in _rvs([inst.inputs, inst.attrs]))
        return Trace(kept, {i: self.decisions[i] for i in kept if i in self.decisions})

    # ---- as text and as data

    def as_python(self, remove_postproc: bool = False) -> List[str]:
        """One line of Python for each instruction."""
        names = _Names()
        return [inst.text(names, self.decisions.get(inst)) for inst in self._upto_postproc(remove_postproc)]

    def as_json(self, remove_postproc: bool = False) -> List[Any]:
        """[instructions, decisions]: [kind, inputs, attributes, outputs] and [number, choice] of each."""
        names = _Names()
        insts, decisions = [], []
        for i, inst in enumerate(self._upto_postproc(remove_postproc)):
            inputs = [_to_json(v, names, True) for v in inst.inputs]
            attrs = [_to_json(v, names, False) for v in inst.attrs]
            insts.append([inst.kind.name, inputs, attrs, [names.new(v) for v in inst.outputs]])
            if inst in self.decisions:
                decisions.append([i, self.decisions[inst]])
        return [insts, decisions]

    @staticmethod
    def from_json(json_obj: Any) -> "Trace":
        """The trace that `as_json` wrote."""
        try:
            insts, decisions = json_obj
            known: Dict[str, Any] = {}
            trace = Trace([_inst_of_json(row, known) for row in insts])
            trace.decisions = {trace.insts[int(i)]: _from_json_value(d) for i, d in decisions}
        except (TypeError, ValueError, KeyError, IndexError) as e:
            if isinstance(e, error.LatheError):
                raise
            raise error.ArgumentError(f"this is no trace as Trace.as_json writes it: {e}") from None
        return trace

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: "Schedule") -> None:
        """Does to a schedule what such a trace says."""
        Trace.from_json(json_obj).apply_to_schedule(sch)

    def apply_to_schedule(self, sch: "Schedule", remove_postproc: bool = False,
                          decision_provider: Optional[Callable[..., Any]] = None) -> None:
        """Does the same to another schedule of the same computation.  decision_provider(instruction, inputs,
        attributes, decision) may choose otherwise."""
        insts = self._upto_postproc(remove_postproc)
        functions = {inst.attrs[1] for inst in insts if inst.kind.name == "GetBlock" and len(inst.attrs) > 1}
        if len(functions) > 1:
            raise error.UnsupportedError(
                f"a trace over several functions ({', '.join(sorted(map(str, functions)))}) is not replayed; "
                "replay one function's at a time"
            )
        for name in functions:
            if name is not None and name != sch.func_working_on and name in sch.mod:
                sch.work_on(name)
        names = _Names()
        lines = []
        for inst in insts:
            if inst.kind.primitive == "tensorize":
                intrin = TensorIntrin.get(str(_plain(inst.attrs[0])), allow_missing=True)
                if intrin is not None:
                    call("schedule_add_intrin", sch._sch, intrin)
            decision = self.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, inst.inputs, inst.attrs, decision)
            lines.append(inst.text(names, decision, ["func_name", *FIXED.get(inst.kind.primitive, {})]))
        sch._replay("\n".join(lines))

    def __str__(self) -> str:
        return "\n".join(
            ["# from tvm import tir", "def apply_trace(sch: tir.Schedule) -> None:"]
            + [f"  {x}" for x in self.as_python() or ["pass"]]
        )

    __repr__ = __str__

    def show(self, style: Optional[str] = None, black_format: bool = False) -> None:
        """Prints it, in colour on a terminal."""
        from ...script.highlight import cprint

        cprint(str(self), style)


def _rvs(v: Any) -> Iterator[_RV]:
    if isinstance(v, _RV):
        yield v
    elif isinstance(v, (list, tuple)):
        for x in v:
            yield from _rvs(x)


def _to_json(v: Any, names: _Names, is_input: bool) -> Any:
    """Strings among the inputs are quoted: without quotes they are names."""
    if isinstance(v, _RV):
        return names.of(v)
    if isinstance(v, (list, tuple)):
        return [_to_json(x, names, is_input) for x in v]
    if isinstance(v, dict):
        return {str(k): _to_json(x, names, is_input) for k, x in v.items()}
    v = _plain(v)
    if isinstance(v, str) and is_input and not isinstance(v, _Text):
        return json.dumps(v)
    if v is None and is_input:
        return "None"
    if isinstance(v, bool):
        return int(v)
    if v is None or isinstance(v, (int, float, str)):
        return str(v) if isinstance(v, _Text) else v
    raise error.TypeError(f"a {type(v).__name__} in a trace cannot be written as JSON")


def _from_json_value(v: Any) -> Any:
    v = _plain(v)
    if isinstance(v, str):
        return v
    return [_from_json_value(x) for x in v] if hasattr(v, "__iter__") else v


def _input_of_json(v: Any, known: Dict[str, Any]) -> Any:
    v = _plain(v)
    if isinstance(v, str):
        if v in known:
            return known[v]
        if v == "None":
            return None
        return json.loads(v) if v.startswith('"') else _Text(v)
    if isinstance(v, dict):
        return {str(k): _input_of_json(x, known) for k, x in v.items()}
    return [_input_of_json(x, known) for x in v] if hasattr(v, "__iter__") else v


def _inst_of_json(row: Sequence[Any], known: Dict[str, Any]) -> Instruction:
    name, inputs, attrs, outputs = row
    kind = InstructionKind.get(str(name))
    params = [p for p in _PARAMS[kind.primitive] if not p.is_input and p.name != "decision"]
    values = [_attr_of_json(v, params[i] if i < len(params) else None) for i, v in enumerate(attrs)]
    ins = [_input_of_json(v, known) for v in inputs]
    return Instruction(kind, ins, values, [_define(str(n), known) for n in outputs])


def _attr_of_json(v: Any, p: Optional[Param]) -> Any:
    v = _from_json_value(v)
    if p is None or p.kind == "bool":
        return bool(v)
    if p.kind == "buffer" and isinstance(v, list):
        return tuple(v)
    return _Text(v) if p.kind in ("indexmap", "expr?") and isinstance(v, str) else v


def _define(name: str, known: Dict[str, Any]) -> _RV:
    for cls, letter in _LETTER.items():
        if name.startswith(letter):
            known[name] = cls()
            return known[name]
    raise error.ArgumentError(f"'{name}' names neither a block (b0), a loop (l0) nor a number (v0)")


# ---- from the compiler's text


class Reader:
    """Reads the lines of a schedule's trace, keeping the instructions it made: the same line is the same object.

    given[i] are the blocks, loops and numbers that the call behind line i returned, as far as they are known."""

    def __init__(self, func_name: str):
        self.func_name = func_name
        self.insts: List[Instruction] = []
        self.decisions: Dict[Instruction, Any] = {}
        self.known: Dict[str, Any] = {}
        self.given: List[Optional[List[Any]]] = []

    def copy(self, text: str) -> "Reader":
        """For a copy of the schedule, whose trace is text."""
        self.trace(text)
        new = Reader(self.func_name)
        new.insts, new.decisions, new.known, new.given = (
            list(self.insts),
            dict(self.decisions),
            dict(self.known),
            list(self.given),
        )
        return new

    def trace(self, text: str) -> Trace:
        """The trace of a text that goes on from what was read before."""
        lines = text.splitlines()
        self.given += [None] * (len(lines) - len(self.given))
        for i in range(len(self.insts), len(lines)):
            self.insts.append(self._line(lines[i], self.given[i]))
        return Trace(self.insts, self.decisions)

    def _line(self, text: str, given: Optional[List[Any]]) -> Instruction:
        stmt = ast.parse(text).body[0]
        targets: List[str] = []
        if isinstance(stmt, ast.Assign):
            target = stmt.targets[0]
            targets = [t.id for t in (target.elts if isinstance(target, ast.Tuple) else [target])]  # type: ignore[attr-defined]
        made = stmt.value  # type: ignore[attr-defined]
        primitive = made.func.attr
        params = _PARAMS[primitive]
        values = {p.name: p.default for p in params}
        for i, p in enumerate(params):
            if p.star:
                values[p.name] = [self._value(a, text) for a in made.args[i:]]
                break
            if i < len(made.args):
                values[p.name] = self._value(made.args[i], text)
        values.update({k.arg: self._value(k.value, text) for k in made.keywords})
        inputs: List[Any] = []
        attrs: List[Any] = []
        for p in params:
            v = values[p.name]
            if p.name == "func_name" and v is None:
                v = self.func_name
            if p.is_input and p.is_flat:
                inputs += v
            elif p.name != "decision":
                (inputs if p.is_input else attrs).append(v)
        attrs += FIXED.get(primitive, {}).values()
        kind = next(k for k in InstructionKind._all.values() if k.primitive == primitive)
        inst = Instruction(kind, inputs, attrs, [_define(t, self.known) for t in targets])
        if given is not None and len(given) == len(targets):
            inst.outputs = given
            self.known.update(zip(targets, given))
        if values.get("decision") is not None:
            self.decisions[inst] = values["decision"]
        return inst

    def _value(self, node: ast.expr, text: str) -> Any:
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.List):
            return [self._value(e, text) for e in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple(self._value(e, text) for e in node.elts)
        try:
            return ast.literal_eval(node)
        except ValueError:
            return _Text(ast.get_source_segment(text, node) or "")


def flatten(result: Union[None, _RV, List[Any]]) -> List[Any]:
    """What a primitive gave, as a list."""
    return [] if result is None else list(result) if isinstance(result, list) else [result]
