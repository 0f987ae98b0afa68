"""CMSIS-NN's kernel cases as TFLite models (LATHE_SHARED or ../shared): the integers that its authors recorded.

A case says multipliers and shifts; the model has the scales nearest to them.  Activations that TFLite has no name for are
applied to the result.  Cases of other arithmetic than TFLite's are named below with the reason."""

from __future__ import annotations

import json
import os
import pathlib
import tarfile
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from test_tflite_operators import run_lathe
from tflite_writer import Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared"))
ARCHIVE = SHARED / "conformance/cmsis-nn-half.tar.xz"


class Case:
    def __init__(self, text: bytes) -> None:
        data = json.loads(text)
        self.name: str = data["case"]
        prefix = self.name.upper() + "_"
        self.number: Dict[str, Any] = {k[len(prefix):] if k.startswith(prefix) else k: v
                                       for k, v in data["defines"].items()}
        self.arrays = {k.replace(self.name + "_", "", 1): v for k, v in data["arrays"].items()}

    def __getitem__(self, name: str) -> Any:
        return self.number[name]

    def array(self, *names: str) -> Optional[np.ndarray]:
        """The first of these that is there; one that names another is that one."""
        for name in names:
            entry = self.arrays.get(name)
            while entry and entry["values"] and isinstance(entry["values"][0], str):
                entry = self.arrays.get(entry["values"][0].replace(self.name + "_", "", 1))
            if entry and entry["values"]:
                return np.asarray(entry["values"]).astype(entry["type"].replace("_t", "").replace("q15", "int16"))
        return None

    def dtype(self, *names: str) -> str:
        found = self.array(*names)
        assert found is not None
        return found.dtype.name


def load() -> Dict[str, Case]:
    if not ARCHIVE.exists():
        return {}
    with tarfile.open(ARCHIVE) as tar:
        texts = [tar.extractfile(m).read() for m in tar.getmembers() if m.name.endswith(".json")]  # type: ignore
    return {c.name: c for c in map(Case, texts)}


CASES = load()


class Unfit(Exception):
    """The case's arrays do not fit its numbers, or TFLite cannot say it."""


def fit(a: Optional[np.ndarray], shape: Tuple[int, ...]) -> np.ndarray:
    if a is None or a.size != int(np.prod(shape)):
        raise Unfit(f"{None if a is None else a.size} elements for {shape}")
    return a.reshape(shape)


def factor(multiplier: Any, shift: Any) -> Any:
    return np.asarray(multiplier, np.float64) * 2.0 ** (np.asarray(shift, np.float64) - 31)


def unpacked(raw: np.ndarray, n: int) -> np.ndarray:
    """Two to a byte, the low half first."""
    byte = raw.astype(np.uint8)
    both = np.stack([byte & 15, byte >> 4], 1).reshape(-1)[:n].astype(np.int8)
    return np.where(both > 7, both - 16, both).astype(np.int8)


def padding(size: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> int:
    """SAME 0 or VALID 1."""
    span = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    if out == -(-size // stride) and before == total // 2:
        return 0
    if out == (size - span) // stride + 1 and before == 0:
        return 1
    raise Unfit(f"a padding of {before}")


def one_padding(c: Case) -> int:
    kinds = {padding(c["INPUT_H"], c["OUTPUT_H"], c["FILTER_Y"], c["STRIDE_Y"], c["DILATION_Y"], c["PAD_Y"]),
             padding(c["INPUT_W"], c["OUTPUT_W"], c["FILTER_X"], c["STRIDE_X"], c["DILATION_X"], c["PAD_X"])}
    trivial = {0, 1}  # where an axis is both, the other one says
    if len(kinds) == 2 and (c["FILTER_Y"] == 1 or c["FILTER_X"] == 1):
        long = "X" if c["FILTER_Y"] == 1 else "Y"
        side = "W" if long == "X" else "H"
        kinds = {padding(c[f"INPUT_{side}"], c[f"OUTPUT_{side}"], c[f"FILTER_{long}"], c[f"STRIDE_{long}"],
                         c[f"DILATION_{long}"], c[f"PAD_{long}"])}
    if len(kinds) != 1 or not kinds <= trivial:
        raise Unfit("another padding along each axis")
    return kinds.pop()


Run = Tuple[bytes, List[np.ndarray], np.ndarray]


def conv(c: Case) -> Run:
    depthwise = "CH_MULT" in c.number
    cin, cout = c["IN_CH"], c["OUT_CH"]
    n, h, w = c["INPUT_BATCHES"], c["INPUT_H"], c["INPUT_W"]
    x = fit(c.array("input"), (n, h, w, cin))
    ky, kx = c["FILTER_Y"], c["FILTER_X"]
    groups = c.number.get("GROUPS", 1)
    shape = (1, ky, kx, cout) if depthwise else (cout, ky, kx, cin // groups)
    raw = c.array("weights")
    assert raw is not None
    if c.array("input_weights") is not None:
        raise Unfit("two sets of data are mixed in the case")
    if "int4" in c.name:
        raw = unpacked(raw, int(np.prod(shape)))
    weights = fit(raw, shape)
    m = Model()
    zero, out_zero = -c["INPUT_OFFSET"], c["OUTPUT_OFFSET"]
    scale = np.resize(factor(c.array("output_mult", "output_multiplier"), c.array("output_shift")), cout)
    xt = m.input("x", x.shape, x.dtype.name, scale=1.0, zero=zero)
    wt = m.const("w", weights.astype(np.int8), scale=scale, axis=3 if depthwise else 0)
    bias = c.array("biases", "bias")
    ins = [xt, wt]
    if bias is not None:
        ins.append(m.const("b", fit(bias, (cout,)), scale=scale))
    y = m.tensor("y", (n, c["OUTPUT_H"], c["OUTPUT_W"], cout), x.dtype.name, scale=1.0, zero=out_zero)
    options: Dict[int, Any] = {0: ("i8", one_padding(c)), 1: ("i32", c["STRIDE_X"]), 2: ("i32", c["STRIDE_Y"])}
    if depthwise:
        options.update({3: ("i32", cout // cin), 5: ("i32", c["DILATION_X"]), 6: ("i32", c["DILATION_Y"])})
    else:
        options.update({4: ("i32", c["DILATION_X"]), 5: ("i32", c["DILATION_Y"])})
    m.op("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", ins, [y], (2 if depthwise else 1, options), 3)
    m.output(y)
    want = fit(c.array("output_ref", "output"), (n, c["OUTPUT_H"], c["OUTPUT_W"], cout))
    return m.bytes(), [x], want


def transpose_conv(c: Case) -> Run:
    cin, cout, n = c["IN_CH"], c["OUT_CH"], c["INPUT_BATCHES"]
    x = fit(c.array("input"), (n, c["INPUT_H"], c["INPUT_W"], cin))
    out = (n, c["OUTPUT_H"], c["OUTPUT_W"], cout)
    weights = fit(c.array("weights"), (cout, c["FILTER_Y"], c["FILTER_X"], cin))
    scale = factor(c.array("output_mult"), c.array("output_shift"))
    m = Model()
    ins = [m.const("shape", np.int32(out)), m.const("w", weights, scale=scale, axis=0),
           m.input("x", x.shape, x.dtype.name, scale=1.0, zero=-c["INPUT_OFFSET"])]
    bias = c.array("biases")
    if bias is not None:
        ins.append(m.const("b", bias, scale=scale))
    y = m.tensor("y", out, x.dtype.name, scale=1.0, zero=c["OUTPUT_OFFSET"])
    same = c["PAD_X"] > 0 or c["PAD_Y"] > 0 or c["OUTPUT_H"] == c["INPUT_H"] * c["STRIDE_Y"]
    m.op("TRANSPOSE_CONV", ins, [y], (49, {0: ("i8", 0 if same else 1), 1: ("i32", c["STRIDE_X"]),
                                           2: ("i32", c["STRIDE_Y"])}), 3)
    m.output(y)
    return m.bytes(), [x], fit(c.array("output_ref"), out)


def pool(c: Case) -> Run:
    x = fit(c.array("input_tensor"), (c["INPUT_N"], c["INPUT_H"], c["INPUT_W"], c["INPUT_C"]))
    out = (c["INPUT_N"], c["OUTPUT_H"], c["OUTPUT_W"], c["OUTPUT_C"])
    m = Model()
    xt, y = m.input("x", x.shape, x.dtype.name, scale=1.0), m.tensor("y", out, x.dtype.name, scale=1.0)
    same = str(c["PAD"]).upper().strip('"') == "SAME"
    m.op("AVERAGE_POOL_2D" if "avg" in c.name else "MAX_POOL_2D", [xt], [y],
         (5, {0: ("i8", 0 if same else 1), 1: ("i32", c["STRIDE_W"]), 2: ("i32", c["STRIDE_H"]),
              3: ("i32", c["FILTER_W"]), 4: ("i32", c["FILTER_H"])}), 3)
    m.output(y)
    return m.bytes(), [x], fit(c.array("output"), out)


def dense(c: Case) -> Run:
    n, units = c["INPUT_BATCHES"], c["OUT_CH"]
    k = c.number.get("ACCUMULATION_DEPTH", c["IN_CH"])
    x = fit(c.array("input"), (n, k))
    raw = c.array("weights", "input_weights")
    assert raw is not None
    weights = fit(unpacked(raw, units * k) if "int4" in c.name else raw, (units, k))
    scale = factor(c.array("output_mult", "output_multiplier"), c.array("output_shift")) \
        if "OUTPUT_MULTIPLIER" not in c.number else float(factor(c["OUTPUT_MULTIPLIER"], c["OUTPUT_SHIFT"]))
    m = Model()
    ins = [m.input("x", x.shape, x.dtype.name, scale=1.0, zero=-c["INPUT_OFFSET"]),
           m.const("w", weights.astype(np.int8), scale=scale, zero=-c.number.get("FILTER_OFFSET", 0))]
    bias = c.array("biases", "bias", "input_bias")
    if bias is not None:
        ins.append(m.const("b", fit(bias, (units,)), scale=scale))
    y = m.tensor("y", (n, units), x.dtype.name, scale=1.0, zero=c["OUTPUT_OFFSET"])
    m.op("FULLY_CONNECTED", ins, [y], (8, {}), 4)
    m.output(y)
    return m.bytes(), [x], fit(c.array("output_ref", "output"), (n, units))


def softmax(c: Case) -> Run:
    shape = (c["NUM_ROWS"], c["ROW_SIZE"])
    x, want = fit(c.array("input"), shape), fit(c.array("output_ref"), shape)
    scale = float(factor(c["INPUT_MULT"], c["INPUT_LEFT_SHIFT"])) / 2**26
    m = Model()
    xt = m.input("x", shape, x.dtype.name, scale=scale)
    out = (1 / 256, -128) if want.dtype == np.int8 else (1 / 65536, -32768)
    y = m.tensor("y", shape, want.dtype.name, scale=out[0], zero=out[1])
    m.op("SOFTMAX", [xt], [y], (9, {0: ("f32", 1.0)}), 3)
    m.output(y)
    return m.bytes(), [x], want


def pair(c: Case) -> Run:
    a, b = c.array("input1"), c.array("input2")
    want = c.array("output_ref")
    assert a is not None and b is not None and want is not None
    m = Model()
    if c.name.startswith("add"):
        f = [float(factor(c[f"INPUT{i}_MULT"], c[f"INPUT{i}_SHIFT"])) for i in (1, 2)]
        scales = [2 * v for v in f]
        twice = 2 * max(scales)
        out = twice / (2 ** c["LEFT_SHIFT"] * float(factor(c["OUTPUT_MULT"], c["OUTPUT_SHIFT"])))
        op, options = "ADD", (11, {1: ("bool", False)})
    else:
        scales, out = [1.0, float(factor(c["OUTPUT_MULT"], c["OUTPUT_SHIFT"]))], 1.0
        op, options = "MUL", (21, {})
    ins = [m.input(f"x{i}", v.shape, v.dtype.name, scale=scales[i], zero=-c[f"INPUT{i + 1}_OFFSET"])
           for i, v in enumerate((a, b))]
    y = m.tensor("y", want.shape, want.dtype.name, scale=out, zero=c["OUTPUT_OFFSET"])
    m.op(op, ins, [y], options, 3)
    m.output(y)
    return m.bytes(), [a, b], want


def extreme(c: Case) -> Run:
    shapes = [tuple(c[f"{d}_{i}"] for d in ("BATCH", "HEIGHT", "WIDTH", "CHANNEL")) for i in (1, 2)]
    out = tuple(c[f"OUTPUT_{d}"] for d in ("BATCH", "HEIGHT", "WIDTH", "CHANNEL"))
    values = [fit(c.array(f"input_tensor_{i}"), s) for i, s in zip((1, 2), shapes)]
    m = Model()
    ins = [m.input(f"x{i}", v.shape, v.dtype.name, scale=1.0) for i, v in enumerate(values)]
    y = m.tensor("y", out, values[0].dtype.name, scale=1.0)
    m.op("MAXIMUM" if c.name.startswith("max") else "MINIMUM", ins, [y], (39, {}), 3)
    m.output(y)
    return m.bytes(), values, fit(c.array("output_ref", "output"), out)


def batch_matmul(c: Case) -> Run:
    left = (c["LHS_BATCH"], c["LHS_HEIGHT"], c["LHS_ROWS"], c["LHS_COLS"])
    right = (c["RHS_BATCH"], c["RHS_HEIGHT"], c["RHS_ROWS"], c["RHS_COLS"])
    out = (c["OUTPUT_BATCH"], c["OUTPUT_HEIGHT"], c["OUTPUT_ROWS"], c["OUTPUT_COLS"])
    a, b = fit(c.array("lhs_input_tensor"), left), fit(c.array("rhs_input_tensor"), right)
    adjoint = [str(c[f"ADJ_{k}"]).lower() in ("true", "1") for k in "XY"]
    m = Model()
    ins = [m.input("a", left, a.dtype.name, scale=1.0, zero=-c["LHS_OFFSET"]),
           m.input("b", right, b.dtype.name, scale=float(factor(c["OUTPUT_MULTIPLIER"], c["OUTPUT_SHIFT"])),
                   zero=-c["RHS_OFFSET"])]
    y = m.tensor("y", out, a.dtype.name, scale=1.0, zero=c["OUTPUT_OFFSET"])
    m.op("BATCH_MATMUL", ins, [y], (101, {0: ("bool", adjoint[0]), 1: ("bool", adjoint[1])}), 3)
    m.output(y)
    return m.bytes(), [a, b], fit(c.array("output_ref", "output"), out)


def svdf(c: Case) -> Run:
    filters, memory, rank = c["FEATURE_BATCHES"], c["TIME_BATCHES"], c["RANK"]
    n, size = c["INPUT_BATCHES"], c["INPUT_SIZE"]
    x = c.array("input_sequence")
    assert x is not None
    if x.size != n * size:
        raise Unfit("a sequence, whose state goes from one run to the next")
    time = fit(c.array("weights_time"), (filters, memory))
    m = Model()
    ins = [m.input("x", (n, size), "int8", scale=1.0, zero=-c["INPUT_OFFSET"]),
           m.const("f", fit(c.array("weights_feature"), (filters, size)),
                   scale=float(factor(c["MULTIPLIER_IN"], c["SHIFT_1"]))),
           m.const("t", time, scale=float(factor(c["MULTIPLIER_OUT"], c["SHIFT_2"]))),
           m.const("b", fit(c.array("biases"), (filters // rank,)), scale=1.0),
           m.tensor("s", (n, filters * memory), "int16", scale=1.0, variable=True)]
    y = m.tensor("y", (n, filters // rank), "int8", scale=1.0, zero=c["OUTPUT_OFFSET"])
    m.op("SVDF", ins, [y], (6, {0: ("i32", rank), 1: ("i8", 1)}), 3)
    m.output(y)
    return m.bytes(), [x.reshape(n, size)], fit(c.array("output_ref"), (n, filters // rank))


#: by how a case's name begins
KINDS = [("avg", pool), ("max" + "pool", pool), ("maximum", extreme), ("minimum", extreme), ("add", pair), ("mul", pair),
         ("softmax", softmax), ("svdf", svdf), ("batch_matmul", batch_matmul), ("fully", dense), ("fc_", dense),
         ("transpose_conv", transpose_conv), ("reverse_transpose_conv", transpose_conv)]
#: cases that are not TFLite's, or not of one run
OTHERS = {"lstm": "test_tflite_lstm.py has them, against LiteRT",
          "ds_cnn": "a whole network, which test_tflite_models.py has",
          "transpose_": "its shapes are not in the case", "pad_": "its shapes are not in the case"}


def limits(c: Case) -> Tuple[int, int]:
    for prefix in ("OUT_ACTIVATION_", "ACTIVATION_"):
        if prefix + "MIN" in c.number:
            return c[prefix + "MIN"], c[prefix + "MAX"]
    return -(1 << 31), (1 << 31) - 1


def is_conv(c: Case) -> bool:
    return "FILTER_X" in c.number


@pytest.mark.skipif(not CASES, reason="the shared conformance cases are not there")
@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name: str) -> None:
    c = CASES[name]
    make = next((f for begin, f in KINDS if name.startswith(begin)), conv if is_conv(c) else None)
    if make is None:
        pytest.skip(next((why for begin, why in OTHERS.items() if name.startswith(begin)), "of no kind that is known"))
    try:
        data, inputs, want = make(c)
    except (Unfit, KeyError) as why:
        pytest.skip(f"{type(why).__name__} {why}")
    got = np.clip(run_lathe(data, inputs)[0].astype(int), *limits(c))
    if make is dense:  # LiteRT has come to round once what these cases round twice
        np.testing.assert_allclose(got, want, rtol=0, atol=1)
        assert np.mean(got != want) < 0.05
    else:
        np.testing.assert_array_equal(got, want)
