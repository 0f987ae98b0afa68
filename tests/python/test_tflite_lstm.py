"""LSTM cells of TFLite, in integers and floats, against LiteRT: every form of the cell, over one call and several."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

import lathe
from lathe import relay

from test_tflite_operators import compare, compare_calls
from tflite_writer import Model

BATCH, STEPS, INPUTS, UNITS = 2, 4, 5, 6


class Form(NamedTuple):
    """Which parts a cell has."""

    cifg: bool = False  # no input gate
    peephole: bool = False
    norm: bool = False
    projection: int = 0  # results
    clip: Tuple[float, float] = (0.0, 0.0)
    time_major: bool = False
    zero: int = 0  # zero point of the hidden values, other than the results' where there is a projection
    op: str = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def model(form: Form, integers: bool, seed: int = 1) -> Tuple[bytes, List[np.ndarray]]:
    rng = np.random.default_rng(seed)
    results = form.projection or UNITS
    one = form.op == "LSTM"
    shape = (BATCH, INPUTS) if one else (STEPS, BATCH, INPUTS) if form.time_major else (BATCH, STEPS, INPUTS)
    m = Model()
    scale = {"x": 0.02, "w": 0.01, "h": 0.011, "p": 0.0002, "c": 2.0**-11, "n": 0.0003, "inter": 0.004}

    def q(kind: str, zero: int = 0) -> Dict[str, Any]:
        return {"scale": scale[kind], "zero": zero} if integers else {}

    def const(name: str, size: Tuple[int, ...], dtype: str, kind: str) -> int:
        if not integers:
            return m.const(name, (rng.standard_normal(size) * 0.5).astype("float32"))
        limit = {"int8": 127, "int16": 30000, "int32": 3000}[dtype]
        value = rng.integers(-limit, limit + 1, size).astype(dtype)
        return m.const(name, value, scale=scale.get(kind, 1e-4), zero=0)

    x = m.input("x", shape, "int8" if integers else "float32", **q("x", -7))
    gates = range(1, 4) if form.cifg else range(4)
    ins = [x] + [-1] * 23
    for g in gates:
        ins[1 + g] = const(f"w{g}", (UNITS, INPUTS), "int8", "w")
        ins[5 + g] = const(f"r{g}", (UNITS, results), "int8", "w")
        ins[12 + g] = const(f"b{g}", (UNITS,), "int32", "b")
        if form.norm:
            ins[20 + g] = const(f"n{g}", (UNITS,), "int16", "n")
        if form.peephole and g != 2:
            ins[9 + (2 if g == 3 else g)] = const(f"p{g}", (UNITS,), "int16", "p")
    if form.projection:
        ins[16] = const("v", (results, UNITS), "int8", "w")
        ins[17] = const("vb", (results,), "int32", "b")
    zero = 9 if form.projection else form.zero
    ins[18] = m.tensor("h", (BATCH, results), "int8" if integers else "float32", variable=True, **q("h", zero))
    ins[19] = m.tensor("c", (BATCH, UNITS), "int16" if integers else "float32", variable=True, **q("c"))
    inter = []
    if integers:
        for g in range(4):
            inter.append(m.tensor(f"i{g}", (), "int16", scale=scale["inter"], zero=0))
        inter.append(m.tensor("hidden", (), "int8", scale=scale["h"], zero=form.zero))
    y = m.tensor("y", (*shape[:-1], results), "int8" if integers else "float32", **q("h", zero))
    options = {0: ("i8", 4), 1: ("f32", form.clip[0]), 2: ("f32", form.clip[1])}
    if not one:
        options[3] = ("bool", form.time_major)
    outs = [y]
    m.op(form.op, ins if form.norm else ins[:20], outs, (14 if one else 71, options), 3 if integers else 1,
         intermediates=inter)
    m.output(y)
    if integers:
        return m.bytes(), [rng.integers(-128, 128, shape).astype("int8")]
    return m.bytes(), [rng.standard_normal(shape).astype("float32")]


FORMS = {
    "plain": Form(), "time-major": Form(time_major=True), "zero-point": Form(zero=11), "cifg": Form(cifg=True),
    "peephole": Form(peephole=True), "clip": Form(clip=(0.4, 0.0)), "projection": Form(projection=3),
    "projection-zero": Form(projection=3, zero=-20), "projection-clip": Form(projection=3, clip=(0.5, 0.3)),
    "norm": Form(norm=True), "everything": Form(True, True, True, 3, (0.7, 0.8), True),
}


@pytest.mark.parametrize("name", FORMS)
def test_integers(name: str) -> None:
    data, inputs = model(FORMS[name], True)
    compare(data, inputs)
    compare_calls(data, [inputs, [inputs[0][::-1].copy()]])


@pytest.mark.parametrize("name", [n for n in FORMS if "zero" not in n])
def test_floats(name: str) -> None:
    data, inputs = model(FORMS[name], False)
    compare_calls(data, [inputs, [inputs[0][::-1].copy()]], 1e-5)


@pytest.mark.parametrize("integers", [False, True])
def test_one_step(integers: bool) -> None:
    compare(*model(Form(op="LSTM"), integers), atol=1e-5)


# ---- what does not fit -----------------------------------------------------------------------------------------------


def refused(change: Any, sentence: str) -> None:
    """The sentence about the plain cell of integers with one thing changed in its description."""
    built = Model.bytes

    def spoilt(self: Model) -> bytes:
        change(self)
        return built(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "bytes", spoilt)
        data = model(Form(), True)[0]
    with pytest.raises(lathe.LatheError, match=sentence):
        relay.frontend.from_tflite(data)


def test_what_does_not_fit() -> None:
    def tensor(m: Model, name: str) -> Dict[int, Any]:
        return next(t for t in m.tensors if t[3][1] == name)

    def scale(name: str, value: float) -> Any:
        def change(m: Model) -> None:
            tensor(m, name)[4][1].fields[2] = ("[f32]", [value])

        return change

    refused(scale("c", 0.0003), "a cell's scale of 0.0003")
    refused(scale("c", 2.0**-5), "a cell's scale of 0.03125")
    refused(scale("r1", 0.0), "scale 0 of tensor 'r1' is 0")
    refused(scale("h", float("nan")), "scale 0 of tensor 'h' is nan")
    refused(lambda m: m.ops[0].fields.pop(8), "intermediate result 4 is missing")
    refused(lambda m: tensor(m, "c").update({1: ("i8", 9)}), "data of int8 with cells of int8")
    refused(lambda m: tensor(m, "c").update({0: ("[i32]", [2, -6])}), "the variable 'c' has a dimension of -6")
