"""TFLite's builtin operators, one model each, against LiteRT's reference kernels.

Integers must be the same to the bit; floats agree to a few units in the last place of what is summed."""

from __future__ import annotations

import functools
import zlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor

from tflite_writer import Model, Table

interpreter = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is not installed: pip install ai-edge-litert"
)


# ---- running ---------------------------------------------------------------------------------------------------------


def litert(data: bytes, inputs: Sequence[np.ndarray], runs: int = 1, reference: bool = True) -> List[np.ndarray]:
    """What LiteRT's reference kernels give, or those that it runs without a delegate."""
    kinds = interpreter.OpResolverType
    kind = kinds.BUILTIN_REF if reference else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    it = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=kind, num_threads=1)
    it.allocate_tensors()
    for _ in range(runs):
        for detail, value in zip(it.get_input_details(), inputs):
            it.set_tensor(detail["index"], value)
        it.invoke()
    return [it.get_tensor(d["index"]) for d in it.get_output_details()]


def compare_calls(data: bytes, calls: Sequence[Sequence[np.ndarray]], atol: float = 0) -> None:
    """Several runs of one executor, which keeps states between them, and once more after a reset of both."""
    it = interpreter.Interpreter(
        model_content=data, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF, num_threads=1
    )
    it.allocate_tensors()
    mod, params = relay.frontend.from_tflite(data)
    run = graph_executor.GraphModule(relay.build(mod, target="llvm", params=params)["default"](lathe.cpu()))
    assert run.get_num_inputs() == len(it.get_input_details())
    assert run.get_num_outputs() == len(it.get_output_details())
    seen = []
    for turn in range(2):
        for inputs in calls:
            for i, (detail, value) in enumerate(zip(it.get_input_details(), inputs)):
                it.set_tensor(detail["index"], value)
                run.set_input(i, value)
            it.invoke()
            run.run()
            for i, detail in enumerate(it.get_output_details()):
                np.testing.assert_allclose(run.get_output(i).numpy(), it.get_tensor(detail["index"]), rtol=0, atol=atol)
            seen.append(run.get_output(0).numpy())
        if turn == 0:
            it.reset_all_variables()
            run.reset()
    np.testing.assert_array_equal(seen[: len(calls)], seen[len(calls) :])


def run_lathe(data: bytes, inputs: Sequence[np.ndarray], opt_level: int = 3) -> List[np.ndarray]:
    mod, params = relay.frontend.from_tflite(data)
    with lathe.transform.PassContext(opt_level=opt_level):
        lib = relay.build(mod, target="llvm", params=params)
    run = graph_executor.GraphModule(lib["default"](lathe.cpu()))
    for i, value in enumerate(inputs):
        run.set_input(i, value)
    run.run()
    return [run.get_output(i).numpy() for i in range(run.get_num_outputs())]


#: operators that LiteRT's list of reference kernels leaves out, or whose reference kernel is not what it documents: sums
#: that come out as -1, a window that lacks its last element
NO_REFERENCE = {"CEIL", "ROUND", "ELU", "SEGMENT_SUM", "SUM", "LOCAL_RESPONSE_NORMALIZATION"}


def compare(data: bytes, inputs: Sequence[np.ndarray], reference: bool = True, rtol: float = 2e-5,
            atol: float = 2e-6, units: int = 0) -> None:
    want = litert(data, inputs, reference=reference)
    got = run_lathe(data, inputs)
    assert len(want) == len(got)
    for w, g in zip(want, got):
        assert w.shape == g.shape
        assert w.dtype == g.dtype
        if w.dtype.kind == "f":
            np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
        elif units:
            np.testing.assert_allclose(g.astype(int), w.astype(int), rtol=0, atol=units)
        else:
            np.testing.assert_array_equal(g, w)


# ---- describing ------------------------------------------------------------------------------------------------------


class T(NamedTuple):
    """A tensor: an input of random values, or a constant; an output has a shape alone."""

    shape: Sequence[int] = ()
    dtype: str = "float32"
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    value: Any = None
    low: Optional[float] = None
    high: Optional[float] = None


def K(value: Any, dtype: Optional[str] = None, scale: Any = None, zero: Any = 0, axis: int = 0) -> T:
    """A constant."""
    array = np.asarray(value) if dtype in (None, "int4") else np.asarray(value, dtype)
    if array.dtype == np.int64 and dtype is None:
        array = array.astype(np.int32)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    return T(array.shape, dtype or array.dtype.name, scale, zero, axis, array)


def draw(rng: np.random.Generator, t: T) -> np.ndarray:
    if t.dtype == "bool":
        return rng.integers(0, 2, t.shape).astype(bool)
    if t.dtype.startswith("float"):
        x = rng.standard_normal(t.shape) if t.low is None else rng.uniform(t.low, t.high, t.shape)
        return np.asarray(x, t.dtype)
    info = np.iinfo(t.dtype)
    bits = info.bits
    low = t.low if t.low is not None else (info.min if bits <= 16 else -100)
    high = t.high if t.high is not None else (info.max if bits <= 16 else 100)
    return np.asarray(rng.integers(int(low), int(high) + 1, t.shape), t.dtype)


def build(op: str, ins: Sequence[Optional[T]], outs: Sequence[T], options: Any = None, version: int = 1,
          custom: bytes = b"") -> Tuple[bytes, List[np.ndarray]]:
    rng = np.random.default_rng(zlib.crc32(repr((op, options, [(i.shape, i.dtype) if i else 0 for i in ins])).encode()))
    m = Model()
    inputs, numbers = [], []
    for k, t in enumerate(ins):
        if t is None:
            numbers.append(-1)
        elif t.value is not None:
            numbers.append(m.const(f"c{k}", t.value, t.dtype, scale=t.scale, zero=t.zero, axis=t.axis))
        else:
            numbers.append(m.input(f"x{k}", t.shape, t.dtype, scale=t.scale, zero=t.zero, axis=t.axis))
            inputs.append(draw(rng, t))
    results = [m.tensor(f"y{k}", t.shape, t.dtype, scale=t.scale, zero=t.zero) for k, t in enumerate(outs)]
    m.op(op, numbers, results, options, version, custom)
    m.output(*results)
    return m.bytes(), inputs


CASES: Dict[str, Callable[[], Any]] = {}


def case(name: str, op: str, ins: Sequence[Optional[T]], outs: Sequence[T], options: Any = None, version: int = 1,
         custom: bytes = b"", **tolerance: Any) -> None:
    assert name not in CASES, name
    CASES[name] = functools.partial(_check, op, ins, outs, options, version, custom, tolerance)


def _check(op: str, ins: Any, outs: Any, options: Any, version: int, custom: bytes, tolerance: Any) -> None:
    data, inputs = build(op, ins, outs, options, version, custom)
    compare(data, inputs, op not in NO_REFERENCE, **tolerance)


#: of each quantized type: a scale and a zero point for inputs, and others for outputs
QUANT = {"int8": ((0.0713, -9), (0.0517, 11), (0.1391, 3)), "uint8": ((0.0713, 119), (0.0517, 140), (0.1391, 125)),
         "int16": ((0.000713, 0), (0.000517, 0), (0.001391, 0))}


def q(shape: Sequence[int], dtype: str, which: int = 0, **more: Any) -> T:
    scale, zero = QUANT[dtype][which]
    return T(shape, dtype, scale, zero, **more)


RNG = np.random.default_rng(7)


# ---- functions of one tensor -----------------------------------------------------------------------------------------

for _op, _low, _high in [("ABS", None, None), ("CEIL", -5, 5), ("COS", -9, 9), ("EXP", -4, 4), ("FLOOR", -5, 5),
                         ("LOG", 0.1, 9), ("NEG", None, None), ("RSQRT", 0.1, 9), ("SIN", -9, 9), ("SQRT", 0, 9),
                         ("SQUARE", None, None), ("ROUND", -5, 5), ("SIGN", None, None), ("ELU", None, None),
                         ("RELU", None, None), ("RELU6", -9, 9), ("RELU_N1_TO_1", None, None),
                         ("RELU_0_TO_1", None, None), ("TANH", None, None), ("LOGISTIC", None, None),
                         ("HARD_SWISH", -5, 5), ("ZEROS_LIKE", None, None)]:
    case(f"{_op}-float", _op, [T((2, 3, 5), low=_low, high=_high)], [T((2, 3, 5))])
for _op in ("ABS", "NEG"):
    case(f"{_op}-int32", _op, [T((7,), "int32")], [T((7,), "int32")])
case("LOGICAL_NOT", "LOGICAL_NOT", [T((9,), "bool")], [T((9,), "bool")])
_EVERY = (16, 17)
for _dt in ("int8", "uint8", "int16"):
    for _op in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"):
        if _dt != "int16" or _op in ("RELU", "RELU6"):
            case(f"{_op}-{_dt}", _op, [q(_EVERY, _dt)], [q(_EVERY, _dt, 1)])
    case(f"LEAKY_RELU-{_dt}", "LEAKY_RELU", [q(_EVERY, _dt)], [q(_EVERY, _dt, 1)], (75, {0: ("f32", 0.2)}))
    _logistic = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}[_dt]
    _tanh = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}[_dt]
    _shape = (256,) if _dt != "int16" else (5000,)
    for _scale in ((0.0713, 0.0171) if _dt != "int16" else (0.000713, 1 / 4096, 0.00171)):
        _in = T(_shape, _dt, _scale, QUANT[_dt][0][1])
        case(f"LOGISTIC-{_dt}-{_scale:g}", "LOGISTIC", [_in], [T(_shape, _dt, *_logistic)], version=2)
        case(f"TANH-{_dt}-{_scale:g}", "TANH", [_in], [T(_shape, _dt, *_tanh)], version=2)
case("TANH-int16-2048", "TANH", [T((5000,), "int16", 1 / 2048)], [T((5000,), "int16", 1 / 32768)], version=2)
for _dt in ("int8", "uint8"):
    for _k, (_si, _so) in enumerate([(0.0713, 0.0517), (0.0237, 0.0235), (0.4, 0.3)]):
        case(f"HARD_SWISH-{_dt}-{_k}", "HARD_SWISH", [T((256,), _dt, _si, 5 + 120 * (_dt == "uint8"))],
             [T((256,), _dt, _so, 2 + 120 * (_dt == "uint8"))])
    for _near in (False, True):
        case(f"GELU-{_dt}-{_near}", "GELU", [q((256,), _dt)], [q((256,), _dt, 1)], (116, {0: ("bool", _near)}))
case("GELU-float", "GELU", [T((3, 40))], [T((3, 40))], (116, {0: ("bool", False)}), atol=1e-6)
case("GELU-float-near", "GELU", [T((3, 40))], [T((3, 40))], (116, {0: ("bool", True)}), atol=1e-6)
case("LEAKY_RELU-float", "LEAKY_RELU", [T((3, 5))], [T((3, 5))], (75, {0: ("f32", 0.3)}))
case("ELU-int8", "ELU", [q((256,), "int8")], [q((256,), "int8", 1)])
for _dt in ("int8", "int16"):
    _n = 256 if _dt == "int8" else 4000
    case(f"ABS-{_dt}", "ABS", [q((_n,), _dt)], [q((_n,), _dt, 1)])
    case(f"ABS-{_dt}-same", "ABS", [q((_n,), _dt)], [q((_n,), _dt)])
    case(f"EXP-{_dt}", "EXP", [T((_n,), _dt, 0.02 if _dt == "int8" else 0.0001, 0)],
         [T((_n,), _dt, 0.07 if _dt == "int8" else 0.001, -100 if _dt == "int8" else 0)], version=2)
    case(f"LOG-{_dt}", "LOG", [T((_n,), _dt, 0.02 if _dt == "int8" else 0.0001, -100 if _dt == "int8" else 0)],
         [T((_n,), _dt, 0.05 if _dt == "int8" else 0.0005, 20 if _dt == "int8" else 0)], version=2)
    case(f"RSQRT-{_dt}", "RSQRT",
         [T((_n,), _dt, 0.02 if _dt == "int8" else 0.0001, -100 if _dt == "int8" else 0, low=-100 if _dt == "int8" else 1)],
         [T((_n,), _dt, 0.05 if _dt == "int8" else 0.0025, -80 if _dt == "int8" else 0)], version=2)
for _a, _b in [("float32", "int32"), ("int32", "float32"), ("int8", "float32"), ("uint8", "int32"), ("float32", "bool"),
               ("bool", "float32"), ("int64", "int32"), ("float32", "int64"), ("int32", "uint8"), ("float32", "int8"),
               ("int16", "int32"), ("float32", "float16"), ("float16", "float32"), ("int32", "bool")]:
    case(f"CAST-{_a}-{_b}", "CAST", [T((4, 6), _a, low=-50 if _a[0] != "u" else 0, high=50)], [T((4, 6), _b)],
         (37, {0: ("i8", 0), 1: ("i8", 0)}), rtol=1e-3 if "16" in _b else 1e-6)
case("BITCAST", "BITCAST", [T((5,))], [T((5,), "int32")])
for _bits, _narrow in [(8, False), (4, False)]:
    case(f"FAKE_QUANT-{_bits}-{_narrow}", "FAKE_QUANT", [T((4, 30), low=-3, high=3)], [T((4, 30))],
         (58, {0: ("f32", -1.3), 1: ("f32", 2.1), 2: ("i32", _bits), 3: ("bool", _narrow)}), atol=1e-6)

# ---- between real numbers and stored integers --------------------------------------------------------------------------

for _dt in ("int8", "uint8", "int16"):
    case(f"QUANTIZE-{_dt}", "QUANTIZE", [T((9, 50), low=-9, high=9)], [q((9, 50), _dt)], version=2)
    case(f"DEQUANTIZE-{_dt}", "DEQUANTIZE", [q((9, 50), _dt)], [T((9, 50))], version=3, rtol=0, atol=0)
for _a, _b in [("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8"), ("int16", "int16"),
               ("int8", "int16"), ("int16", "int8")]:
    case(f"QUANTIZE-{_a}-{_b}", "QUANTIZE", [q((9, 50), _a)], [q((9, 50), _b, 1)], version=2)
case("QUANTIZE-sign", "QUANTIZE", [T((256,), "uint8", 0.5, 128)], [T((256,), "int8", 0.5, 0)])
case("DEQUANTIZE-float16", "DEQUANTIZE", [K(RNG.standard_normal((3, 4)), "float16")], [T((3, 4))], version=3)
case("DEQUANTIZE-channels", "DEQUANTIZE", [T((3, 4), "int8", [0.1, 0.2, 0.3], [1, 2, 3], 0)], [T((3, 4))], version=5,
     rtol=0, atol=0)

# ---- pairs -----------------------------------------------------------------------------------------------------------

_PAIRS = {"same": ((2, 3, 4), (2, 3, 4), (2, 3, 4)), "channel": ((2, 3, 4), (4,), (2, 3, 4)),
          "scalar": ((2, 3, 4), (), (2, 3, 4)), "both": ((2, 1, 4), (1, 3, 1), (2, 3, 4))}
for _op, _opt in [("ADD", 11), ("SUB", 28), ("MUL", 21), ("DIV", 29), ("MAXIMUM", 39), ("MINIMUM", 39),
                  ("SQUARED_DIFFERENCE", 76)]:
    for _name, (_a, _b, _c) in _PAIRS.items():
        case(f"{_op}-float-{_name}", _op, [T(_a), T(_b)], [T(_c)], (_opt, {}))
    if _op != "SQUARED_DIFFERENCE":
        case(f"{_op}-int32", _op, [T((3, 4), "int32"), T((3, 4), "int32", low=1, high=9)], [T((3, 4), "int32")],
             (_opt, {}))
for _act in (1, 2, 3):
    for _op, _opt in [("ADD", 11), ("SUB", 28), ("MUL", 21), ("DIV", 29)]:
        case(f"{_op}-float-activation{_act}", _op, [T((5, 7)), T((5, 7), low=0.5, high=9)], [T((5, 7))],
             (_opt, {0: ("i8", _act)}))
        if _op != "DIV":
            case(f"{_op}-int8-activation{_act}", _op, [q((8, 40), "int8"), q((8, 40), "int8", 1)],
                 [q((8, 40), "int8", 2)], (_opt, {0: ("i8", _act)}), 2)
for _dt in ("int8", "uint8", "int16"):
    for _op, _opt in [("ADD", 11), ("SUB", 28), ("MUL", 21)]:
        _version = {"ADD": 4, "SUB": 5, "MUL": 4}[_op] if _dt == "int16" else 2
        for _name, (_a, _b, _c) in {"same": ((20, 30), (20, 30), (20, 30)), "channel": ((20, 30), (30,), (20, 30)),
                                    "scalar": ((20, 30), (), (20, 30))}.items():
            case(f"{_op}-{_dt}-{_name}", _op, [q(_a, _dt), q(_b, _dt, 1)], [q(_c, _dt, 2)],
                 (_opt, {1: ("bool", False)} if _op != "MUL" else {}), _version)
    for _op in ("MAXIMUM", "MINIMUM"):
        case(f"{_op}-{_dt}", _op, [q((5, 9), _dt), q((5, 9), _dt)], [q((5, 9), _dt)], (39, {}), 3)
        case(f"{_op}-{_dt}-row", _op, [q((5, 9), _dt), q((9,), _dt)], [q((5, 9), _dt)], (39, {}), 3)
# what has no zero to divide by, of either sign; of quotients near zero LiteRT shifts by more bits than there are
for _name, _low, _high, _act in [("above", 120, 255, 0), ("below", 0, 118, 0), ("relu6", 120, 255, 3)]:
    case(f"DIV-uint8-{_name}", "DIV",
         [T((20, 30), "uint8", 0.0713, 119, low=150), T((20, 30), "uint8", 0.0517, 119, low=_low, high=_high)],
         [T((20, 30), "uint8", 0.3, 100)], (29, {0: ("i8", _act)}), 2)
case("DIV-uint8-row", "DIV", [T((20, 30), "uint8", 0.0713, 119, high=90), T((30,), "uint8", 0.0517, 119, low=130)],
     [T((20, 30), "uint8", 0.01, 7)], (29, {}), 2)
for _op, _opt in [("ADD", 11), ("SUB", 28)]:
    case(f"{_op}-int16-power", _op, [T((20, 30), "int16", 2.0**-15), T((20, 30), "int16", 2.0**-12)],
         [T((20, 30), "int16", 2.0**-12)], (_opt, {1: ("bool", True)}), 3)
case("SQUARED_DIFFERENCE-int8", "SQUARED_DIFFERENCE", [q((20, 30), "int8"), q((20, 30), "int8", 1)],
     [T((20, 30), "int8", 1.1, -100)], (76, {}), 2)
for _op in ("EQUAL", "NOT_EQUAL", "LESS", "GREATER", "GREATER_EQUAL", "LESS_EQUAL"):
    case(f"{_op}-float", _op, [T((3, 4)), T((3, 4))], [T((3, 4), "bool")])
    case(f"{_op}-int32", _op, [T((30,), "int32", low=-2, high=2), T((), "int32", low=-1, high=1)], [T((30,), "bool")])
    case(f"{_op}-int8", _op, [q((40, 40), "int8"), q((40, 40), "int8", 1)], [T((40, 40), "bool")], version=2)
    case(f"{_op}-uint8", _op, [q((40, 40), "uint8"), q((40,), "uint8", 1)], [T((40, 40), "bool")], version=2)
for _op in ("LOGICAL_AND", "LOGICAL_OR"):
    case(_op, _op, [T((3, 4), "bool"), T((4,), "bool")], [T((3, 4), "bool")])
for _op, _opt in [("FLOOR_DIV", 65), ("FLOOR_MOD", 72)]:
    case(f"{_op}-int32", _op, [T((50,), "int32"), T((50,), "int32", low=1, high=9)], [T((50,), "int32")], (_opt, {}))
    case(f"{_op}-float", _op, [T((50,)), T((50,), low=0.5, high=2)], [T((50,))], (_opt, {}), 2)
case("POW-float", "POW", [T((30,), low=0.1, high=3), T((30,))], [T((30,))], (56, {}))
case("POW-int32", "POW", [T((30,), "int32", low=-5, high=5), T((30,), "int32", low=0, high=4)], [T((30,), "int32")],
     (56, {}))
case("ATAN2", "ATAN2", [T((30,)), T((30,))], [T((30,))])
case("BITWISE_XOR", "BITWISE_XOR", [T((30,), "int32"), T((30,), "int32")], [T((30,), "int32")])
case("RIGHT_SHIFT", "RIGHT_SHIFT", [T((30,), "int32"), T((30,), "int32", low=0, high=5)], [T((30,), "int32")])
case("ADD_N", "ADD_N", [T((4, 5)), T((4, 5)), T((4, 5))], [T((4, 5))])
case("ADD_N-int32", "ADD_N", [T((4, 5), "int32"), T((4, 5), "int32")], [T((4, 5), "int32")])
case("SELECT", "SELECT", [T((4, 5), "bool"), T((4, 5)), T((4, 5))], [T((4, 5))])
case("SELECT-rows", "SELECT", [T((4,), "bool"), T((4, 5)), T((4, 5))], [T((4, 5))])
case("SELECT_V2", "SELECT_V2", [T((4, 1), "bool"), T((4, 5)), T((1, 5))], [T((4, 5))])
case("SELECT_V2-int8", "SELECT_V2", [T((4, 5), "bool"), q((4, 5), "int8"), q((4, 5), "int8")], [q((4, 5), "int8")])
case("PRELU-float", "PRELU", [T((2, 3, 3, 4)), K(RNG.standard_normal((1, 1, 4)))], [T((2, 3, 3, 4))])
for _dt in ("int8", "uint8"):
    case(f"PRELU-{_dt}", "PRELU", [q((2, 5, 5, 4), _dt), q((1, 1, 4), _dt, 1)], [q((2, 5, 5, 4), _dt, 2)])

# ---- along axes ------------------------------------------------------------------------------------------------------

for _op in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
    for _axes, _keep, _out in [([1], False, (2, 4, 5)), ([1, 2], True, (2, 1, 1, 5)), ([0, -1], False, (3, 4)),
                               ([0, 1, 2, 3], False, ())]:
        case(f"{_op}-float-{_axes}-{_keep}", _op, [T((2, 3, 4, 5)), K(_axes)], [T(_out)],
             (27, {0: ("bool", _keep)}), rtol=1e-4)
    case(f"{_op}-int32", _op, [T((3, 5), "int32", low=-9, high=9), K([1])], [T((3,), "int32")],
         (27, {0: ("bool", False)}))
for _dt in ("int8", "uint8", "int16"):
    for _axes, _keep, _out in [([1, 2], True, (2, 1, 1, 5)), ([1, 2], False, (2, 5)), ([3], False, (2, 7, 6))]:
        case(f"MEAN-{_dt}-{_axes}-{_keep}", "MEAN", [q((2, 7, 6, 5), _dt), K(_axes)], [q(_out, _dt, 1)],
             (27, {0: ("bool", _keep)}), 2)
    case(f"MEAN-{_dt}-same", "MEAN", [q((2, 7, 7, 5), _dt), K([1, 2])], [q((2, 5), _dt)],
         (27, {0: ("bool", False)}), 2)
    for _op in ("REDUCE_MAX", "REDUCE_MIN"):
        case(f"{_op}-{_dt}", _op, [q((4, 30), _dt), K([1])], [q((4,), _dt)], (27, {0: ("bool", False)}), 2)
for _dt in ("int8", "uint8", "int16"):
    case(f"SUM-{_dt}", "SUM", [q((40, 30), _dt), K([1])], [T((40,), _dt, QUANT[_dt][0][0] * 9, QUANT[_dt][1][1])],
         (27, {0: ("bool", False)}), 2)
for _op in ("REDUCE_ANY", "REDUCE_ALL"):
    case(_op, _op, [T((5, 3), "bool"), K([1])], [T((5,), "bool")], (27, {0: ("bool", False)}))
for _op, _opt in [("ARG_MAX", 40), ("ARG_MIN", 57)]:
    for _dt in ("float32", "int8", "uint8", "int32"):
        case(f"{_op}-{_dt}", _op, [T((4, 9), _dt), K(1)], [T((4,), "int32")], (_opt, {0: ("i8", 2)}), 2)
    case(f"{_op}-int64", _op, [T((4, 9)), K(-2)], [T((9,), "int64")], (_opt, {0: ("i8", 4)}))
for _exclusive in (False, True):
    for _reverse in (False, True):
        case(f"CUMSUM-{_exclusive}-{_reverse}", "CUMSUM", [T((3, 7)), K(1)], [T((3, 7))],
             (102, {0: ("bool", _exclusive), 1: ("bool", _reverse)}), rtol=1e-4, atol=1e-5)
case("CUMSUM-int32", "CUMSUM", [T((3, 7), "int32"), K(0)], [T((3, 7), "int32")], (102, {}))
for _beta in (1.0, 0.5):
    case(f"SOFTMAX-float-{_beta}", "SOFTMAX", [T((3, 12), low=-6, high=6)], [T((3, 12))], (9, {0: ("f32", _beta)}))
    for _dt in ("int8", "uint8"):
        for _scale in (0.0713, 0.6, 0.003):
            case(f"SOFTMAX-{_dt}-{_beta}-{_scale}", "SOFTMAX", [T((20, 40), _dt, _scale, 3)],
                 [T((20, 40), _dt, 1 / 256, -128 if _dt == "int8" else 0)], (9, {0: ("f32", _beta)}), 2)
case("SOFTMAX-int8-rank4", "SOFTMAX", [q((2, 3, 4, 10), "int8")], [T((2, 3, 4, 10), "int8", 1 / 256, -128)],
     (9, {0: ("f32", 1.0)}), 2)
for _scale in (0.0003, 0.001, 0.00005):
    case(f"SOFTMAX-int16-{_scale}", "SOFTMAX", [T((20, 30), "int16", _scale)], [T((20, 30), "int16", 1 / 32768)],
         (9, {0: ("f32", 1.0)}), 3)
case("LOG_SOFTMAX-float", "LOG_SOFTMAX", [T((3, 12))], [T((3, 12))], (36, {}), rtol=1e-4)
case("L2_NORMALIZATION-float", "L2_NORMALIZATION", [T((2, 3, 12))], [T((2, 3, 12))], (12, {}))
for _dt, _zero in [("int8", 0), ("uint8", 128)]:
    for _shape in ((1, 7), (3, 5, 12), (2, 1)):
        case(f"L2_NORMALIZATION-{_dt}-{len(_shape)}-{_shape[0]}", "L2_NORMALIZATION", [q(_shape, _dt)],
             [T(_shape, _dt, 1 / 128, _zero)], (12, {}), 2)
case("LOCAL_RESPONSE_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION", [T((1, 4, 4, 10))], [T((1, 4, 4, 10))],
     (13, {0: ("i32", 2), 1: ("f32", 2.0), 2: ("f32", 0.1), 3: ("f32", 0.75)}), rtol=1e-4)

# ---- shapes ----------------------------------------------------------------------------------------------------------

for _dt in ("float32", "int8"):
    _t = (lambda s: q(s, "int8")) if _dt == "int8" else T
    case(f"RESHAPE-{_dt}", "RESHAPE", [_t((2, 3, 4)), K([4, -1])], [_t((4, 6))], (17, {}))
    case(f"RESHAPE-{_dt}-option", "RESHAPE", [_t((2, 3, 4))], [_t((6, 4))], (17, {0: ("[i32]", [6, 4])}))
    case(f"SQUEEZE-{_dt}", "SQUEEZE", [_t((1, 3, 1, 4))], [_t((3, 4))], (30, {}))
    case(f"SQUEEZE-{_dt}-axes", "SQUEEZE", [_t((1, 3, 1, 4))], [_t((1, 3, 4))], (30, {0: ("[i32]", [2])}))
    case(f"EXPAND_DIMS-{_dt}", "EXPAND_DIMS", [_t((3, 4)), K(-1)], [_t((3, 4, 1))])
    case(f"TRANSPOSE-{_dt}", "TRANSPOSE", [_t((2, 3, 4)), K([2, 0, 1])], [_t((4, 2, 3))])
    case(f"PACK-{_dt}", "PACK", [_t((3, 4)), _t((3, 4))], [_t((3, 2, 4))], (59, {0: ("i32", 2), 1: ("i32", 1)}))
    case(f"UNPACK-{_dt}", "UNPACK", [_t((3, 2, 4))], [_t((3, 4)), _t((3, 4))], (64, {0: ("i32", 2), 1: ("i32", 1)}))
    case(f"SPLIT-{_dt}", "SPLIT", [K(1), _t((3, 6))], [_t((3, 2))] * 3, (35, {0: ("i32", 3)}))
    case(f"SPLIT_V-{_dt}", "SPLIT_V", [_t((3, 7)), K([2, -1, 1]), K(1)], [_t((3, 2)), _t((3, 4)), _t((3, 1))],
         (79, {0: ("i32", 3)}))
    case(f"SLICE-{_dt}", "SLICE", [_t((4, 5, 6)), K([1, 0, 2]), K([2, -1, 3])], [_t((2, 5, 3))])
    case(f"PAD-{_dt}", "PAD", [_t((2, 3)), K([[1, 2], [0, 3]])], [_t((5, 6))])
    case(f"TILE-{_dt}", "TILE", [_t((2, 3)), K([2, 3])], [_t((4, 9))])
    case(f"REVERSE_V2-{_dt}", "REVERSE_V2", [_t((2, 3, 4)), K([1])], [_t((2, 3, 4))])
    case(f"MIRROR_PAD-{_dt}", "MIRROR_PAD", [_t((3, 4)), K([[1, 2], [2, 1]])], [_t((6, 7))], (77, {0: ("i8", 0)}))
    case(f"MIRROR_PAD-{_dt}-symmetric", "MIRROR_PAD", [_t((3, 4)), K([[1, 2], [2, 1]])], [_t((6, 7))],
         (77, {0: ("i8", 1)}))
    case(f"DEPTH_TO_SPACE-{_dt}", "DEPTH_TO_SPACE", [_t((1, 2, 3, 8))], [_t((1, 4, 6, 2))], (94, {0: ("i32", 2)}))
    case(f"SPACE_TO_DEPTH-{_dt}", "SPACE_TO_DEPTH", [_t((1, 4, 6, 2))], [_t((1, 2, 3, 8))], (19, {0: ("i32", 2)}))
    case(f"SPACE_TO_BATCH_ND-{_dt}", "SPACE_TO_BATCH_ND", [_t((2, 5, 6, 3)), K([2, 3]), K([[1, 0], [2, 1]])],
         [_t((12, 3, 3, 3))])
    case(f"BATCH_TO_SPACE_ND-{_dt}", "BATCH_TO_SPACE_ND", [_t((12, 3, 3, 3)), K([2, 3]), K([[1, 0], [2, 1]])],
         [_t((2, 5, 6, 3))])
    case(f"GATHER-{_dt}", "GATHER", [_t((5, 4)), K([3, 0, 1])], [_t((3, 4))], (23, {0: ("i32", 0)}))
    case(f"CONCATENATION-{_dt}", "CONCATENATION", [_t((2, 3)), _t((2, 4))], [_t((2, 7))], (10, {0: ("i32", -1)}))
    case(f"BROADCAST_TO-{_dt}", "BROADCAST_TO", [_t((3, 1)), K([2, 3, 4])], [_t((2, 3, 4))], version=2)
    for _name, _masks, _begin, _end, _strides, _out in [
            ("plain", (0, 0, 0, 0, 0), [0, 1, 2], [2, 3, 4], [1, 1, 1], (2, 2, 2)),
            ("masks", (1, 6, 0, 0, 0), [1, 1, 2], [2, 0, 0], [1, 1, 1], (2, 2, 2)),
            ("negative", (0, 0, 0, 0, 0), [-1, -1, -1], [-3, -4, -5], [-1, -2, -1], (2, 2, 4)),
            ("shrink", (0, 0, 0, 0, 2), [0, 1, 0], [2, 2, 4], [1, 1, 2], (2, 2)),
            ("last", (0, 0, 0, 0, 4), [0, 0, -1], [2, 3, 0], [1, 1, 1], (2, 3)),
            ("backwards", (7, 7, 0, 0, 0), [0, 0, 0], [0, 0, 0], [-1, 1, -1], (2, 3, 4)),
            ("short", (0, 0, 0, 0, 0), [1], [2], [1], (1, 3, 4)),
    ]:
        case(f"STRIDED_SLICE-{_dt}-{_name}", "STRIDED_SLICE", [_t((2, 3, 4)), K(_begin), K(_end), K(_strides)],
             [_t(_out)], (32, {i: ("i32", m) for i, m in enumerate(_masks)}))
    case(f"STRIDED_SLICE-{_dt}-ellipsis", "STRIDED_SLICE", [_t((2, 3, 4)), K([0, 1]), K([0, 3]), K([1, 1])],
         [_t((2, 3, 2))], (32, {2: ("i32", 1)}))
    case(f"STRIDED_SLICE-{_dt}-new", "STRIDED_SLICE", [_t((2, 3)), K([0, 0, 1]), K([2, 0, 3]), K([1, 1, 1])],
         [_t((2, 1, 2))], (32, {3: ("i32", 2)}))
case("PADV2", "PADV2", [T((2, 3)), K([[1, 2], [0, 3]]), K(1.5)], [T((5, 6))])
case("PADV2-int8", "PADV2", [q((2, 3), "int8"), K([[1, 2], [0, 3]]), K(7, "int8", 0.0713, -9)], [q((5, 6), "int8")])
case("PAD-uint8", "PAD", [q((2, 3), "uint8"), K([[1, 2], [0, 3]])], [q((5, 6), "uint8")])
case("CONCATENATION-uint8-scales", "CONCATENATION", [q((9, 30), "uint8"), q((9, 40), "uint8", 1)],
     [q((9, 70), "uint8", 2)], (10, {0: ("i32", 1)}))
case("CONCATENATION-int64", "CONCATENATION", [T((2,), "int64"), T((3,), "int64")], [T((5,), "int64")],
     (10, {0: ("i32", 0)}))
case("SHAPE", "SHAPE", [T((2, 3, 4))], [T((3,), "int32")], (55, {0: ("i8", 2)}))
case("SHAPE-int64", "SHAPE", [T((2, 3, 4))], [T((3,), "int64")], (55, {0: ("i8", 4)}))
case("RANK", "RANK", [T((2, 3, 4))], [T((), "int32")])
case("BROADCAST_ARGS", "BROADCAST_ARGS", [K([3, 1]), K([2, 1, 4])], [T((3,), "int32")])
case("REVERSE_SEQUENCE", "REVERSE_SEQUENCE", [T((3, 5, 2)), K([2, 5, 1])], [T((3, 5, 2))],
     (87, {0: ("i32", 1), 1: ("i32", 0)}))
case("FILL", "FILL", [K([2, 3]), T(())], [T((2, 3))])
case("FILL-int32", "FILL", [K([2, 3]), T((), "int32")], [T((2, 3), "int32")])
case("RANGE", "RANGE", [K(2), K(11), K(3)], [T((3,), "int32")])
case("RANGE-float", "RANGE", [K(0.5), K(3.0), K(0.5)], [T((5,))])
case("ONE_HOT", "ONE_HOT", [T((4,), "int32", low=-1, high=5), K(5), K(2.0), K(-1.0)], [T((4, 5))], (61, {0: ("i32", -1)}))
case("ONE_HOT-axis", "ONE_HOT", [T((4,), "int32", low=0, high=4), K(5), K(1), K(0)], [T((5, 4), "int32")],
     (61, {0: ("i32", 0)}))
case("MATRIX_DIAG", "MATRIX_DIAG", [T((2, 3))], [T((2, 3, 3))])
case("MATRIX_SET_DIAG", "MATRIX_SET_DIAG", [T((2, 3, 4)), T((2, 3))], [T((2, 3, 4))])

# ---- positions -------------------------------------------------------------------------------------------------------

case("GATHER-axis", "GATHER", [T((2, 5, 4)), T((3,), "int32", low=0, high=4)], [T((2, 3, 4))], (23, {0: ("i32", 1)}))
case("GATHER-rank2", "GATHER", [T((5, 4)), K([[3, 0], [1, 1]])], [T((2, 2, 4))], (23, {0: ("i32", 0)}))
case("GATHER-batch", "GATHER", [T((2, 5, 3)), K([[3, 0], [1, 1]])], [T((2, 2, 3))],
     (23, {0: ("i32", 1), 1: ("i32", 1)}), 5)
case("GATHER_ND", "GATHER_ND", [T((4, 5, 6)), K([[3, 0], [1, 1], [0, 4]])], [T((3, 6))])
case("GATHER_ND-int8", "GATHER_ND", [q((4, 5), "int8"), K([[3, 0], [1, 1]])], [q((2,), "int8")])
case("SCATTER_ND", "SCATTER_ND", [K([[1], [3], [1]]), T((3, 4)), K([5, 4])], [T((5, 4))])
case("SCATTER_ND-int32", "SCATTER_ND", [K([[1, 2], [3, 0]]), T((2,), "int32"), K([5, 4])], [T((5, 4), "int32")])
case("EMBEDDING_LOOKUP", "EMBEDDING_LOOKUP", [T((3,), "int32", low=0, high=4), K(RNG.standard_normal((5, 6)))],
     [T((3, 6))])
case("EMBEDDING_LOOKUP-int8", "EMBEDDING_LOOKUP",
     [T((3,), "int32", low=0, high=4), K(RNG.integers(-128, 128, (5, 6)), "int8", 0.1)], [T((3, 6))], version=3)
case("WHERE", "WHERE", [T((3, 4), "bool")], [T((0, 2), "int64")])
case("TOPK_V2", "TOPK_V2", [T((3, 9)), K(4)], [T((3, 4)), T((3, 4), "int32")])
case("TOPK_V2-int32", "TOPK_V2", [T((3, 9), "int32"), K(2)], [T((3, 2), "int32"), T((3, 2), "int32")])
case("UNIQUE", "UNIQUE", [K([4, 1, 4, 9, 1], "int32")], [T((0,), "int32"), T((5,), "int32")], (80, {0: ("i8", 2)}))
case("SPARSE_TO_DENSE", "SPARSE_TO_DENSE", [K([[0, 1], [2, 3]]), K([3, 4]), T((2,)), K(-1.0)], [T((3, 4))], (50, {}))
case("SPARSE_TO_DENSE-vector", "SPARSE_TO_DENSE", [K([1, 4]), K([6]), K(2.0), K(0.0)], [T((6,))], (50, {}))
for _at in ([1, 1], [9, -3]):
    case(f"DYNAMIC_UPDATE_SLICE-{_at}", "DYNAMIC_UPDATE_SLICE", [T((4, 5)), T((2, 3)), K(_at)], [T((4, 5))])
case("SEGMENT_SUM", "SEGMENT_SUM", [T((5, 3)), K([0, 0, 1, 2, 2])], [T((3, 3))])
for _op in ("SUM", "PROD", "MAX", "MIN"):
    case(f"UNSORTED_SEGMENT_{_op}", f"UNSORTED_SEGMENT_{_op}", [T((5, 3)), K([2, 0, 1, 2, 0]), K(4)], [T((4, 3))])


# ---- convolutions and products -----------------------------------------------------------------------------------------


def weight(shape: Sequence[int], dtype: str, axis: Optional[int] = None, zero: int = 0) -> T:
    """A constant weight: random, with a scale for each channel of an axis, or one."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, dtype, axis)).encode()))
    if dtype == "float32":
        return K(rng.standard_normal(shape))
    low, high = {"int8": (-127, 127), "uint8": (0, 255), "int4": (-7, 7)}[dtype]
    scale = rng.uniform(0.002, 0.03, shape[axis]) if axis is not None else 0.0173
    value = rng.integers(low, high + 1, shape)
    return K(value if dtype == "int4" else value.astype(dtype), dtype, scale, zero, axis or 0)


def bias_for(n: int, x: T, w: T) -> T:
    rng = np.random.default_rng(n)
    if x.dtype == "float32":
        return K(rng.standard_normal(n))
    scale = np.float32(x.scale) * np.asarray(w.scale, np.float32)
    kind = "int64" if x.dtype == "int16" else "int32"
    return K(rng.integers(-2000, 2000, n), kind, scale)


def conv_out(size: int, kernel: int, stride: int, dilation: int, same: bool) -> int:
    return -(-size // stride) if same else (size - (kernel - 1) * dilation - 1) // stride + 1


def conv_case(name: str, x: T, channels: int, kernel: Tuple[int, int], y: T, wtype: str, per_channel: bool = False,
              stride: Tuple[int, int] = (1, 1), dilation: Tuple[int, int] = (1, 1), same: bool = True, act: int = 0,
              groups: int = 1, bias: bool = True, wzero: int = 0, depthwise: bool = False, **tolerance: float) -> None:
    n, h, w, c = x.shape
    if depthwise:
        weights = weight((1, *kernel, channels), wtype, 3 if per_channel else None, wzero)
    else:
        weights = weight((channels, *kernel, c // groups), wtype, 0 if per_channel else None, wzero)
    out = (n, conv_out(h, kernel[0], stride[0], dilation[0], same), conv_out(w, kernel[1], stride[1], dilation[1], same),
           channels)
    ins: List[Optional[T]] = [x, weights]
    if bias:
        ins.append(bias_for(channels, x, weights))
    fields = {0: ("i8", 0 if same else 1), 1: ("i32", stride[1]), 2: ("i32", stride[0])}
    if depthwise:
        fields.update({3: ("i32", channels // c), 4: ("i8", act), 5: ("i32", dilation[1]), 6: ("i32", dilation[0])})
    else:
        fields.update({3: ("i8", act), 4: ("i32", dilation[1]), 5: ("i32", dilation[0])})
    version = 7 if wtype == "int4" else 5 if groups > 1 else 4 if x.dtype == "int16" else 3
    if depthwise:
        version = 6 if wtype == "int4" else 5 if x.dtype == "int16" else 3
    op = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    case(f"{op}-{name}", op, ins, [y._replace(shape=out)], (2 if depthwise else 1, fields), version, **tolerance)


_FORMS = {"plain": {}, "valid": {"same": False}, "stride": {"stride": (2, 2)}, "uneven": {"stride": (2, 1)},
          "dilated": {"dilation": (2, 3)}, "relu": {"act": 1}, "relu6": {"act": 3}, "relu1": {"act": 2}, "bare": {"bias": False}}
for _form, _more in _FORMS.items():
    if _form != "bare":
        conv_case(f"float-{_form}", T((1, 9, 8, 5)), 7, (3, 3), T(), "float32", atol=1e-5, **_more)
    conv_case(f"float-{_form}", T((1, 9, 8, 4)), 8, (3, 3), T(), "float32", depthwise=True, atol=1e-5, **_more)
    for _dt, _w in [("int8", "int8"), ("uint8", "uint8"), ("int16", "int8")]:
        if _dt == "int16" and _form == "bare":
            continue
        _per = _dt != "uint8"
        _out = T((), _dt, {"int8": 0.61, "uint8": 0.73, "int16": 0.011}[_dt], QUANT[_dt][2][1])
        _zero = 117 if _dt == "uint8" else 0
        if _form != "bare":
            conv_case(f"{_dt}-{_form}", q((1, 9, 8, 5), _dt), 7, (3, 3), _out, _w, _per, wzero=_zero, **_more)
        conv_case(f"{_dt}-{_form}", q((1, 9, 8, 4), _dt), 8, (3, 3), _out, _w, _per, wzero=_zero, depthwise=True, **_more)
conv_case("int8-one", q((2, 7, 7, 16), "int8"), 32, (1, 1), T((), "int8", 0.5, 4), "int8", True)
conv_case("int8-tensor", q((2, 7, 7, 16), "int8"), 32, (1, 1), T((), "int8", 0.5, 4), "int8", False)
conv_case("int8-groups", q((1, 8, 8, 8), "int8"), 12, (3, 3), T((), "int8", 0.5, 4), "int8", True, groups=4)
conv_case("float-groups", T((1, 8, 8, 8)), 12, (3, 3), T(), "float32", groups=2, atol=1e-5)
conv_case("int4", q((1, 8, 8, 8), "int8"), 5, (3, 3), T((), "int8", 0.2, 4), "int4", True)
conv_case("int4", q((1, 8, 8, 8), "int8"), 8, (3, 3), T((), "int8", 0.1, 4), "int4", True, depthwise=True)
conv_case("int8-first", q((1, 16, 16, 3), "int8"), 8, (3, 3), T((), "int8", 0.5, 4), "int8", True, stride=(2, 2))
conv_case("int8-one-channel", q((1, 12, 10, 1), "int8"), 8, (3, 3), T((), "int8", 0.5, 4), "int8", True, depthwise=True)
conv_case("uint8-wide", q((1, 6, 6, 32), "uint8"), 32, (1, 1), T((), "uint8", 0.9, 130), "uint8", wzero=140)


def dense_case(name: str, x: T, units: int, y: T, wtype: str, per_channel: bool = False, act: int = 0, keep: bool = False,
               bias: bool = True, wzero: int = 0, **tolerance: float) -> None:
    k = x.shape[-1]
    w = weight((units, k), wtype, 0 if per_channel else None, wzero)
    rows = int(np.prod(x.shape)) // k
    out = (*x.shape[:-1], units) if keep else (rows, units)
    ins: List[Optional[T]] = [x, w, bias_for(units, x, w) if bias else None]
    version = 12 if per_channel else 11 if wtype == "int4" else 7 if x.dtype == "int16" else 6
    case(f"FULLY_CONNECTED-{name}", "FULLY_CONNECTED", ins, [y._replace(shape=out)],
         (8, {0: ("i8", act), 2: ("bool", keep)}), version, **tolerance)


for _act in (0, 1, 2, 3):
    dense_case(f"float-{_act}", T((4, 30)), 9, T(), "float32", act=_act, atol=1e-5)
    dense_case(f"int8-{_act}", q((40, 30), "int8"), 9, T((), "int8", 0.3, 4), "int8", act=_act)
    dense_case(f"uint8-{_act}", q((40, 30), "uint8"), 9, T((), "uint8", 0.4, 120), "uint8", act=_act, wzero=121)
    dense_case(f"int16-{_act}", q((40, 30), "int16"), 9, T((), "int16", 0.003, 0), "int8", act=_act)
dense_case("float-keep", T((2, 3, 30)), 9, T(), "float32", keep=True, atol=1e-5)
dense_case("int8-keep", q((2, 3, 30), "int8"), 9, T((), "int8", 0.3, 4), "int8", keep=True)
dense_case("int8-rank4", q((2, 3, 4, 10), "int8"), 9, T((), "int8", 0.3, 4), "int8")
dense_case("int8-bare", q((6, 32), "int8"), 16, T((), "int8", 0.3, 4), "int8", bias=False)
dense_case("int8-channels", q((6, 32), "int8"), 16, T((), "int8", 0.3, 4), "int8", per_channel=True)
dense_case("int4", q((6, 32), "int8"), 16, T((), "int8", 0.1, 4), "int4")
dense_case("int8-wide", q((3, 256), "int8"), 64, T((), "int8", 0.9, 4), "int8")

# floats beside weights of 8 bits: both sides round activations to 8 bits at run time
for _asymmetric in (False, True):
    for _per in (False, True):
        _w = weight((9, 30), "int8", 0 if _per else None)
        case(f"FULLY_CONNECTED-dynamic-{_asymmetric}-{_per}", "FULLY_CONNECTED", [T((4, 30)), _w, K(RNG.standard_normal(9))],
             [T((4, 9))], (8, {0: ("i8", 1), 3: ("bool", _asymmetric)}), 12 if _per else 9, rtol=1e-4, atol=1e-5)
conv_case("dynamic", T((1, 9, 8, 5)), 7, (3, 3), T(), "int8", True, rtol=1e-4, atol=1e-4)
conv_case("dynamic-tensor", T((2, 9, 8, 5)), 7, (3, 3), T(), "int8", rtol=1e-4, atol=1e-4)
conv_case("dynamic-stride", T((1, 9, 8, 4)), 8, (3, 3), T(), "int8", True, stride=(2, 2), act=3, rtol=1e-4, atol=1e-4)
conv_case("dynamic-batch", T((3, 9, 8, 4)), 8, (3, 3), T(), "int8", True, rtol=1e-4, atol=1e-4)
conv_case("dynamic-batch", T((2, 5, 8, 4)), 8, (2, 3), T(), "int8", True, depthwise=True, same=False, rtol=1e-4,
          atol=1e-4)
conv_case("dynamic-one-channel", T((1, 3, 5, 1)), 1, (2, 3), T(), "int8", depthwise=True, rtol=1e-4, atol=1e-4)
conv_case("dynamic", T((1, 9, 8, 8)), 8, (3, 3), T(), "int8", True, depthwise=True, rtol=1e-4, atol=1e-4)

for _op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
    for _same in (True, False):
        for _k, _s in [((2, 2), (2, 2)), ((3, 2), (1, 1)), ((3, 3), (2, 3))]:
            _out = (2, conv_out(9, _k[0], _s[0], 1, _same), conv_out(8, _k[1], _s[1], 1, _same), 5)
            _opt = (5, {0: ("i8", 0 if _same else 1), 1: ("i32", _s[1]), 2: ("i32", _s[0]), 3: ("i32", _k[1]),
                        4: ("i32", _k[0])})
            case(f"{_op}-float-{_same}-{_k}-{_s}", _op, [T((2, 9, 8, 5))], [T(_out)], _opt)
            for _dt in ("int8", "uint8", "int16"):
                case(f"{_op}-{_dt}-{_same}-{_k}-{_s}", _op, [q((2, 9, 8, 5), _dt)], [q(_out, _dt)], _opt, 3)
    _whole = (5, {0: ("i8", 1), 1: ("i32", 1), 2: ("i32", 1), 3: ("i32", 8), 4: ("i32", 9), 5: ("i8", 1)})
    case(f"{_op}-whole-relu", _op, [q((1, 9, 8, 16), "int8")], [q((1, 1, 1, 16), "int8")], _whole, 2)
case("L2_POOL_2D", "L2_POOL_2D", [T((1, 6, 6, 3))], [T((1, 3, 3, 3))],
     (5, {0: ("i8", 1), 1: ("i32", 2), 2: ("i32", 2), 3: ("i32", 2), 4: ("i32", 2)}))

for _same in (True, False):
    for _stride in (1, 2, 3):
        _h = 4 * _stride if _same else 3 * _stride + 3
        _opt = (49, {0: ("i8", 0 if _same else 1), 1: ("i32", _stride), 2: ("i32", _stride)})
        _shape = K([1, _h, _h, 5])
        case(f"TRANSPOSE_CONV-float-{_same}-{_stride}", "TRANSPOSE_CONV",
             [_shape, weight((5, 3, 3, 6), "float32"), T((1, 4, 4, 6))], [T((1, _h, _h, 5))], _opt, atol=1e-5)
        for _dt, _w, _zero in [("int8", "int8", 0), ("uint8", "uint8", 119), ("int16", "int8", 0)]:
            _x = q((1, 4, 4, 6), _dt)
            _wt = weight((5, 3, 3, 6), _w, 0 if _dt != "uint8" else None, _zero)
            case(f"TRANSPOSE_CONV-{_dt}-{_same}-{_stride}", "TRANSPOSE_CONV", [_shape, _wt, _x, bias_for(5, _x, _wt)],
                 [T((1, _h, _h, 5), _dt, {"int8": 0.5, "uint8": 0.6, "int16": 0.01}[_dt], QUANT[_dt][2][1])], _opt, 3)
case("TRANSPOSE_CONV-int16-bare", "TRANSPOSE_CONV",
     [K([1, 8, 20, 6]), weight((6, 1, 3, 3), "int8", 0), T((1, 8, 18, 3), "int16", 7e-5)],
     [T((1, 8, 20, 6), "int16", 0.0104)], (49, {0: ("i8", 1), 1: ("i32", 1), 2: ("i32", 1)}), 3)
for _same in (True, False):
    case(f"CONV_3D-{_same}", "CONV_3D", [T((1, 5, 6, 7, 3)), weight((2, 3, 3, 3, 4), "float32"), K(RNG.standard_normal(4))],
         [T((1, 5, 6, 7, 4) if _same else (1, 4, 4, 5, 4))],
         (106, {0: ("i8", 0 if _same else 1), 1: ("i32", 1), 2: ("i32", 1), 3: ("i32", 1)}), atol=1e-5)
case("CONV_3D_TRANSPOSE", "CONV_3D_TRANSPOSE",
     [K([1, 4, 6, 8, 2]), weight((2, 3, 3, 2, 3), "float32"), T((1, 2, 3, 4, 3))], [T((1, 4, 6, 8, 2))],
     (106, {0: ("i8", 0), 1: ("i32", 2), 2: ("i32", 2), 3: ("i32", 2)}), atol=1e-5)

for _ax in (False, True):
    for _ay in (False, True):
        _a, _b = ((2, 7, 4) if _ax else (2, 4, 7)), ((2, 5, 7) if _ay else (2, 7, 5))
        _opt = (101, {0: ("bool", _ax), 1: ("bool", _ay)})
        case(f"BATCH_MATMUL-float-{_ax}-{_ay}", "BATCH_MATMUL", [T(_a), T(_b)], [T((2, 4, 5))], _opt, atol=1e-5)
        case(f"BATCH_MATMUL-int8-{_ax}-{_ay}", "BATCH_MATMUL", [q(_a, "int8"), q(_b, "int8", 1)],
             [T((2, 4, 5), "int8", 0.4, 3)], _opt, 2)
        case(f"BATCH_MATMUL-int16-{_ax}-{_ay}", "BATCH_MATMUL", [q(_a, "int16"), q(_b, "int16", 1)],
             [T((2, 4, 5), "int16", 0.02, 0)], _opt, 3)
case("BATCH_MATMUL-broadcast", "BATCH_MATMUL", [T((3, 1, 4, 7)), T((2, 7, 5))], [T((3, 2, 4, 5))], (101, {}), atol=1e-5)

for _corners, _half in [(False, False), (True, False), (False, True)]:
    for _size in ((9, 4), (3, 11)):
        for _dt in ("float32", "int8", "uint8", "int16"):
            _x = T((2, 5, 6, 3)) if _dt == "float32" else q((2, 5, 6, 3), _dt)
            case(f"RESIZE_BILINEAR-{_dt}-{_corners}-{_half}-{_size}", "RESIZE_BILINEAR", [_x, K(_size)],
                 [_x._replace(shape=(2, *_size, 3))], (15, {2: ("bool", _corners), 3: ("bool", _half)}), 3,
                 units=1 if _dt == "uint8" else 0)  # of uint8 LiteRT works in floats, whose sums the compiler contracts
        case(f"RESIZE_NEAREST_NEIGHBOR-{_corners}-{_half}-{_size}", "RESIZE_NEAREST_NEIGHBOR",
             [q((2, 5, 6, 3), "int8"), K(_size)], [q((2, *_size, 3), "int8")],
             (74, {0: ("bool", _corners), 1: ("bool", _half)}), 3)


# ---- boxes -------------------------------------------------------------------------------------------------------------


def _boxes(n: int) -> T:
    rng = np.random.default_rng(n)
    corner = rng.uniform(0, 1, (n, 2))
    return K(np.concatenate([corner, corner + rng.uniform(0.1, 0.4, (n, 2))], 1))


case("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V4", [_boxes(20), T((20,), low=0, high=1), K(8), K(0.4), K(0.2)],
     [T((8,), "int32"), T((), "int32")])
case("NON_MAX_SUPPRESSION_V5", "NON_MAX_SUPPRESSION_V5",
     [_boxes(30), T((30,), low=0, high=1), K(40), K(0.3), K(0.5), K(0.0)],
     [T((40,), "int32"), T((40,)), T((), "int32")])


def flex_map(values: Dict[str, Any]) -> bytes:
    """A flexbuffer: a map of numbers, everything in 4 bytes."""
    names = sorted(values)
    data, keys = bytearray(), []
    for name in names:
        keys.append(len(data))
        data += name.encode() + b"\0"
    data += bytes(-len(data) % 4)
    data += len(names).to_bytes(4, "little")
    at = len(data)
    for k in keys:
        data += (len(data) - k).to_bytes(4, "little")
    data += (len(data) - at).to_bytes(4, "little") + (4).to_bytes(4, "little") + len(names).to_bytes(4, "little")
    start = len(data)
    types = b""
    for name in names:
        value = values[name]
        real = isinstance(value, float)
        data += np.float32(value).tobytes() if real else int(value).to_bytes(4, "little")
        types += bytes([(3 if real else 26 if isinstance(value, bool) else 1) << 2 | 2])
    data += types
    data += bytes([(len(data) - start) & 255, 9 << 2 | 2, 1])
    return bytes(data)


_DETECT = {"max_detections": 6, "max_classes_per_detection": 1, "num_classes": 3, "nms_score_threshold": 0.3,
           "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
           "use_regular_nms": False, "detections_per_class": 100}
_ANCHORS = K(np.concatenate([np.random.default_rng(3).uniform(0.2, 0.8, (24, 2)), np.full((24, 2), 0.3)], 1))
case("DETECTION_POSTPROCESS", "CUSTOM.TFLite_Detection_PostProcess",
     [T((1, 24, 4)), T((1, 24, 4), low=0, high=1), _ANCHORS],
     [T((1, 6, 4)), T((1, 6)), T((1, 6)), T((1,))], custom=flex_map(_DETECT), rtol=1e-4)

# ---- cells -------------------------------------------------------------------------------------------------------------


def cell_case(name: str, op: str, ins: Sequence[Optional[T]], states: Dict[int, T], out: T, options: Any, version: int = 1,
              **tolerance: Any) -> None:
    """A case whose states are variable tensors, in one call and in three."""

    def check() -> None:
        rng = np.random.default_rng(11)
        m, inputs, numbers = Model(), [], []
        for k, t in enumerate(ins):
            if k in states:
                s = states[k]
                numbers.append(m.tensor(f"s{k}", s.shape, s.dtype, scale=s.scale, zero=s.zero, variable=True))
            elif t is None:
                numbers.append(-1)
            elif t.value is not None:
                numbers.append(m.const(f"c{k}", t.value, t.dtype, scale=t.scale, zero=t.zero, axis=t.axis))
            else:
                numbers.append(m.input(f"x{k}", t.shape, t.dtype, scale=t.scale, zero=t.zero))
                inputs.append(draw(rng, t))
        y = m.tensor("y", out.shape, out.dtype, scale=out.scale, zero=out.zero)
        m.op(op, numbers, [y], options, version)
        m.output(y)
        compare(m.bytes(), inputs, **tolerance)
        compare_calls(m.bytes(), [inputs, [x[::-1].copy() for x in inputs], inputs], tolerance.get("atol", 1e-6))

    CASES[f"{op}-{name}"] = check


def w_(*shape: int) -> T:
    return K(np.random.default_rng(sum(shape)).standard_normal(shape) * 0.4)


cell_case("float", "RNN", [T((2, 5)), w_(4, 5), w_(4, 4), w_(4), None], {4: T((2, 4))}, T((2, 4)), (7, {0: ("i8", 4)}))
for _major in (False, True):
    _x, _y = ((6, 2, 5), (6, 2, 4)) if _major else ((2, 6, 5), (2, 6, 4))
    cell_case(f"float-{_major}", "UNIDIRECTIONAL_SEQUENCE_RNN", [T(_x), w_(4, 5), w_(4, 4), w_(4), None],
              {4: T((2, 4))}, T(_y), (31, {0: ("bool", _major), 1: ("i8", 4)}), atol=1e-5)
    for _peephole in (False, True):
        _peep = [w_(4), w_(4), w_(4)] if _peephole else [None] * 3
        cell_case(f"float-{_major}-{_peephole}", "UNIDIRECTIONAL_SEQUENCE_LSTM",
                  [T(_x), *[w_(4, 5)] * 4, *[w_(4, 4)] * 4, *_peep, w_(4), w_(4), w_(4), w_(4), None, None, None, None],
                  {18: T((2, 4)), 19: T((2, 4))}, T(_y), (71, {0: ("i8", 4), 3: ("bool", _major)}), atol=1e-5)
for _rank in (1, 2):
    cell_case(f"float-{_rank}", "SVDF", [T((2, 5)), w_(6, 5), w_(6, 7), w_(6 // _rank), None], {4: T((2, 42))},
              T((2, 6 // _rank)), (6, {0: ("i32", _rank), 1: ("i8", 1)}), atol=1e-5)
    _r = np.random.default_rng(_rank)
    cell_case(f"int8-{_rank}", "SVDF",
              [q((2, 5), "int8"), K(_r.integers(-127, 128, (6, 5)), "int8", 0.02),
               K(_r.integers(-3000, 3000, (6, 7)), "int16", 0.001), K(_r.integers(-900, 900, 6 // _rank), "int32", 1e-5),
               None], {4: T((2, 42), "int16", 0.001, 0)}, T((2, 6 // _rank), "int8", 0.05, 4),
              (6, {0: ("i32", _rank), 1: ("i8", 1)}), 3)


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    CASES[name]()


# ---- control flow ----------------------------------------------------------------------------------------------------


def test_if() -> None:
    m = Model()
    c, x = m.input("c", (), "bool"), m.input("x", (3,))
    y = m.tensor("y", (3,))
    graphs = []
    for name, op, opt in [("yes", "ADD", 11), ("no", "MUL", 21)]:
        g = m.graph(name)
        a, k, r = g.input("a", (3,)), g.const("k", np.float32([1, 2, 3])), g.tensor("r", (3,))
        g.op(op, [a, k], [r], (opt, {}))
        g.output(r)
        graphs.append(len(m.graphs) - 1)
    m.op("IF", [c, x], [y], (92, {0: ("i32", graphs[0]), 1: ("i32", graphs[1])}))
    m.output(y)
    for truth in (True, False):
        compare(m.bytes(), [np.array(truth), np.float32([5, 6, 7])])


def while_model() -> Model:
    """i from 0 while i < n: (i + 1, v * 2 + 1)"""
    m = Model()
    n, v = m.input("n", (), "int32"), m.input("v", (4,))
    i = m.const("i", np.int32(0))
    outs = [m.tensor("i1", (), "int32"), m.tensor("n1", (), "int32"), m.tensor("v1", (4,))]
    cond = m.graph("cond")
    ci, cn, _ = cond.input("i", (), "int32"), cond.input("n", (), "int32"), cond.input("v", (4,))
    go = cond.tensor("go", (), "bool")
    cond.op("LESS", [ci, cn], [go])
    cond.output(go)
    body = m.graph("body")
    bi, bn, bv = body.input("i", (), "int32"), body.input("n", (), "int32"), body.input("v", (4,))
    bi1, t, bv1 = body.tensor("i1", (), "int32"), body.tensor("t", (4,)), body.tensor("v1", (4,))
    body.op("ADD", [bi, body.const("one", np.int32(1))], [bi1], (11, {}))
    body.op("MUL", [bv, body.const("two", np.float32(2))], [t], (21, {}))
    body.op("ADD", [t, body.const("unit", np.float32(1))], [bv1], (11, {}))
    body.output(bi1, bn, bv1)
    m.op("WHILE", [i, n, v], outs, (93, {0: ("i32", 1), 1: ("i32", 2)}))
    m.output(*outs)
    return m


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_while(turns: int) -> None:
    compare(while_model().bytes(), [np.int32(turns), np.float32([1, 2, 3, 4])])


def test_variables() -> None:
    """A variable that CALL_ONCE's subgraph sets, read, changed and read again."""
    m = Model()
    x, y, after = m.input("x", (3,)), m.tensor("y", (3,)), m.tensor("after", (3,))
    handle, was = m.tensor("handle", (), "resource"), m.tensor("was", (3,))
    once = m.graph("once")
    h = once.tensor("h", (), "resource")
    name = (111, {0: ("str", ""), 1: ("str", "counter")})
    once.op("VAR_HANDLE", [], [h], name)
    once.op("ASSIGN_VARIABLE", [h, once.const("start", np.float32([10, 20, 30]))], [])
    m.op("CALL_ONCE", [], [], (103, {0: ("i32", 1)}))
    m.op("VAR_HANDLE", [], [handle], name)
    m.op("READ_VARIABLE", [handle], [was])
    m.op("ADD", [was, x], [y], (11, {}))
    m.op("ASSIGN_VARIABLE", [handle, y], [])
    m.op("READ_VARIABLE", [handle], [after])
    m.output(y, after)
    compare(m.bytes(), [np.float32([1, 2, 3])])
    # LiteRT's reset does not run CALL_ONCE again; here the first run after a reset is a first run
    library = relay.build(relay.frontend.from_tflite(m.bytes())[0], "llvm")
    run = graph_executor.GraphModule(library["default"](lathe.cpu()))
    for k in (1, 2, 3, 1):
        run.run(x=np.float32([1, 2, 3]))
        np.testing.assert_array_equal(run.get_output(0).numpy(), np.float32([10, 20, 30]) + k * np.float32([1, 2, 3]))
        if k == 3:
            run.reset()


def test_constant_variable() -> None:
    """One that nothing but CALL_ONCE assigns is a constant: no state, and it folds."""
    m = Model()
    x, y, was = m.input("x", (3,)), m.tensor("y", (3,)), m.tensor("was", (3,))
    handle = m.tensor("handle", (), "resource")
    once = m.graph("once")
    h = once.tensor("h", (), "resource")
    name = (111, {0: ("str", ""), 1: ("str", "table")})
    once.op("VAR_HANDLE", [], [h], name)
    once.op("ASSIGN_VARIABLE", [h, once.const("start", np.float32([10, 20, 30]))], [])
    m.op("CALL_ONCE", [], [], (103, {0: ("i32", 1)}))
    m.op("VAR_HANDLE", [], [handle], name)
    m.op("READ_VARIABLE", [handle], [was])
    m.op("ADD", [was, x], [y], (11, {}))
    m.output(y)
    compare(m.bytes(), [np.float32([1, 2, 3])])
    assert len(relay.frontend.from_tflite(m.bytes())[0]["main"].params) == 1


def test_swapped_variables() -> None:
    """Two variables that change places in each run, around a loop: a program that is not static, and one that is."""
    for turns in (False, True):
        m = while_model() if turns else Model()
        if not turns:
            m.input("v", (4,))
        one, two = (111, {0: ("str", ""), 1: ("str", "one")}), (111, {0: ("str", ""), 1: ("str", "two")})
        ha, hb = m.tensor("ha", (), "resource"), m.tensor("hb", (), "resource")
        a, b, c = m.tensor("a", (4,)), m.tensor("b", (4,)), m.tensor("c", (4,))
        v = m.outputs[2] if turns else m.inputs[0]
        m.op("VAR_HANDLE", [], [ha], one)
        m.op("VAR_HANDLE", [], [hb], two)
        m.op("READ_VARIABLE", [ha], [a])
        m.op("READ_VARIABLE", [hb], [b])
        m.op("ADD", [b, v], [c], (11, {}))
        m.op("ASSIGN_VARIABLE", [ha, c], [])
        m.op("ASSIGN_VARIABLE", [hb, a], [])
        m.output(a, b)
        value = np.float32([1, 2, 3, 4])
        run = graph_executor.GraphModule(
            relay.build(relay.frontend.from_tflite(m.bytes())[0], "llvm")["default"](lathe.cpu())
        )
        first, second, more = np.zeros(4, "float32"), np.zeros(4, "float32"), value
        if turns:
            more = (value * 2 + 1) * 2 + 1
        for _ in range(4):
            run.set_input("v", value)
            if turns:
                run.set_input("n", np.int32(2))
            run.run()
            n = run.get_num_outputs()
            np.testing.assert_array_equal(run.get_output(n - 2).numpy(), first)
            np.testing.assert_array_equal(run.get_output(n - 1).numpy(), second)
            first, second = second + more, first


# ---- what a file says ------------------------------------------------------------------------------------------------


def test_signature_names() -> None:
    m = Model()
    a, b = m.input("serving_default_a:0", (2,)), m.input("serving_default_b:0", (2,))
    y = m.tensor("StatefulPartitionedCall:0", (2,))
    m.op("SUB", [a, b], [y], (28, {}))
    m.output(y)
    m.signature = ({"left": a, "right": b}, {"difference": y})
    mod, _ = relay.frontend.from_tflite(m.bytes(), {"left": (2,)}, {"left": "float32"})
    assert [p.name_hint for p in mod["main"].params] == ["left", "right"]
    assert "difference" in str(mod["main"].attrs["output_names"])


def test_open_batch() -> None:
    """A size that the file leaves open is as the file has it, or as it is bound."""
    m = Model()
    x = m.input("x", (1, 6), signature=(-1, 6))
    y = m.tensor("y", (1, 4), signature=(-1, 4))
    m.op("FULLY_CONNECTED", [x, m.const("w", np.arange(24, dtype="float32").reshape(4, 6))], [y], (8, {}))
    m.output(y)
    shape = relay.frontend.from_tflite(m.bytes())[0]["main"].params[0].type_annotation.shape
    assert [int(d) for d in shape] == [1, 6]
    mod, params = relay.frontend.from_tflite(m.bytes(), {"x": (5, 6)})
    run = relay.create_executor("graph", mod).evaluate()
    value = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
    np.testing.assert_allclose(run(value).numpy(), value @ np.arange(24, dtype="float32").reshape(4, 6).T, rtol=1e-5)


def test_sparse_weight() -> None:
    """A weight in compressed rows, and one in blocks of 2 by 2."""
    dense = np.zeros((4, 6), np.float32)
    dense[0, [1, 4]] = 1, 2
    dense[2, [0, 5]] = 3, 4
    level = Table({0: ("i8", 1), 2: ("u8", 1), 3: ("table", Table({0: ("[i32]", [0, 2, 2, 4, 4])})),
                   4: ("u8", 3), 5: ("table", Table({0: ("[u8]", [1, 4, 0, 5])}))})
    rows = Table({0: ("[i32]", [0, 1]), 2: ("[table]", [Table({0: ("i8", 0), 1: ("i32", 4)}), level])})
    _sparse_case(dense, [1, 2, 3, 4], rows)
    dense = np.zeros((4, 6), np.float32)
    dense[0:2, 2:4] = [[1, 2], [3, 4]]
    dense[2:4, 0:2] = [[5, 6], [7, 8]]
    level = Table({0: ("i8", 1), 2: ("u8", 2), 3: ("table", Table({0: ("[u16]", [0, 1, 2])})),
                   4: ("u8", 1), 5: ("table", Table({0: ("[i32]", [1, 0])}))})
    size = Table({0: ("i8", 0), 1: ("i32", 2)})
    blocks = Table({0: ("[i32]", [0, 1, 2, 3]), 1: ("[i32]", [0, 1]), 2: ("[table]", [size, level, size, size])})
    _sparse_case(dense, range(1, 9), blocks)


def _sparse_case(dense: np.ndarray, values: Sequence[float], sparsity: Table) -> None:
    m = Model()
    x, y = m.input("x", (3, 6)), m.tensor("y", (3, 4))
    m.buffers.append(np.float32(list(values)).tobytes())
    w = m.tensor("w", (4, 6), buffer=1, sparsity=sparsity)
    m.op("FULLY_CONNECTED", [x, w], [y], (8, {}), 8)
    m.output(y)
    value = np.random.default_rng(0).standard_normal((3, 6)).astype("float32")
    np.testing.assert_allclose(run_lathe(m.bytes(), [value])[0], value @ dense.T, rtol=1e-5)
