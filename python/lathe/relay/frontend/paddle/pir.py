"""Programs in Paddle's newer form, a text of JSON whose names are short: "#" is a kind, "%" a value, "I" and "O" what
goes in and out, "A" attributes, "N", "AT" and "D" their names, kinds and data, "TT" a type."""

from __future__ import annotations

import json
from typing import Any, List, Tuple

from .... import error
from .program import Op, Program, Region, Tensor

TYPES = {
    "t_bool": "bool", "t_ui8": "uint8", "t_i8": "int8", "t_i16": "int16", "t_i32": "int32", "t_i64": "int64",
    "t_f16": "float16", "t_bf16": "bfloat16", "t_f32": "float32", "t_f64": "float64",
}  # fmt: skip
#: What stands before the name of an operator for builtin, pd_op and cf.
_DIALECTS = {"0.": "builtin.", "1.": "", "2.": ""}


def _type(t: Any) -> Tuple[List[int], str]:
    if not t["#"].endswith("t_dtensor"):
        raise error.UnsupportedError(f"from_paddle: inputs and parameters of the kind '{t['#']}'")
    kind = t["D"][0]["#"].split(".")[-1]
    if kind not in TYPES:
        raise error.UnsupportedError(f"from_paddle: tensors of the type '{kind}'")
    return [int(d) for d in t["D"][1]], TYPES[kind]


def _data(a: Any) -> Any:
    """The data of an attribute."""
    if isinstance(a, dict) and "#" in a and "D" in a:
        return _data(a["D"])
    return [_data(x) for x in a] if isinstance(a, list) else a


def _values(x: Any) -> List[Any]:
    return x if isinstance(x, list) else [] if x is None else [x]


def _op(o: Any) -> Op:
    name = _DIALECTS.get(o["#"][:2], o["#"][:2]) + o["#"][2:]
    attrs = {a["N"]: _data(a["AT"]) for a in o["A"]}
    inputs = [v["%"] or None for v in _values(o.get("I"))]
    outputs = [v["%"] for v in _values(o.get("O"))]
    return Op(name, inputs, outputs, attrs, [_region(r) for r in o.get("regions", [])])


def _region(r: Any) -> Region:
    block = r["blocks"][0]
    return Region([a["#"] for a in block["args"]], [_op(o) for o in block["ops"]])


def read(data: bytes) -> Program:
    """The program that a file holds."""
    try:
        top = json.loads(data)
        if top["base_code"]["magic"] != "pir":
            raise KeyError("magic")
        return _program(top["program"]["regions"][0]["blocks"][0]["ops"])
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as e:
        raise error.ArgumentError(
            f"the file is no program of Paddle's, or is damaged: {type(e).__name__}: {str(e)[:100]}"
        ) from None


def _program(ops: Any) -> Program:
    made = Program([], [], [], [])
    fetched = []
    for o in ops:
        if o["#"] == "p":
            made.params.append(Tensor(o["O"]["%"], o["A"][3], *_type(o["O"]["TT"])))
            continue
        op = _op(o)
        if op.name in ("data", "feed"):
            made.inputs.append(Tensor(op.outputs[0], op.attrs["name"], *_type(_values(o["O"])[0]["TT"])))
        elif op.name == "fetch":
            fetched.append((op.get("col", 0), op.inputs[0]))
        elif op.name == "shadow_output":
            fetched.append((len(fetched), op.inputs[0]))
        else:
            made.ops.append(op)
    made.outputs.extend(v for _, v in sorted(fetched, key=lambda p: p[0]))
    return made


__all__ = ["read"]
