"""The simulated accelerator of backends/npu.c and its backend in examples/npu, brought in through UMA."""

import json
import pathlib
import struct
import sys

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe._ffi import library
from lathe.contrib import graph_executor
from lathe.relay.backend.contrib import CSource, Graph, Module
from lathe.relay.backend.contrib.uma import PassPhase, UMABackend, uma_available
from lathe.relay.dataflow_pattern import is_op, wildcard

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples/npu"))
import npu  # noqa: E402

RNG = np.random.default_rng(16)
BUILT = pathlib.Path(library.runtime()._name).parent
needs_plugin = pytest.mark.skipif(
    not (BUILT / "lathe-plugins/lathe_plugin_npu.so").exists(), reason="the plugins of the runtime are not built"
)


@pytest.fixture(scope="module")
def backend():
    made = npu.NpuBackend()
    made.register()
    return made


def run(mod, x):
    m = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](lathe.cpu(0)))
    m.run(x=x)
    return m.get_output(0).numpy()


def externals(mod):
    return [f for f in mod.functions.values() if "Compiler" in (f.attrs or {})]


def scale(v):
    return relay.const(np.float32(v))


def zero(v):
    return relay.const(np.int32(v))


def conv(shape, weight, bias=None, clip=None, zero_in=0, weight_zero=0, **attrs):
    """A quantized convolution from int8 to int8, of random numbers."""
    x = relay.var("x", shape=shape, dtype="int8")
    w = relay.const(RNG.integers(-128, 128, weight, "int8"))
    y = relay.qnn.op.conv2d(x, w, zero(zero_in), zero(weight_zero), scale(0.1), scale(0.1), channels=weight[0],
                            kernel_size=weight[2:], **attrs)  # fmt: skip
    if bias is not None:
        y = y + relay.const(RNG.integers(-5000, 5000, bias, "int32"))
    factors = relay.const(RNG.uniform(1e-4, 5e-3, weight[0]).astype("float32"))
    y = relay.qnn.op.requantize(y, factors, zero(0), scale(0.3), zero(int(RNG.integers(-9, 9))), axis=1)
    y = relay.clip(y, *clip) if clip else y
    return relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], y)))


CASES = {
    "one place": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "tiles in every direction": ((2, 17, 5, 33), (18, 17, 3, 3), {"padding": (1, 1), "zero_in": 5}),
    "steps": ((1, 4, 11, 40), (7, 4, 3, 5), {"strides": (2, 3), "padding": (2, 3, 0, 1), "zero_in": -128}),
    "wide windows": ((1, 3, 9, 20), (5, 3, 2, 3), {"dilation": (3, 4), "padding": (0, 7), "bias": (5, 1, 1)}),
    "limits": ((1, 8, 6, 6), (16, 8, 1, 1), {"clip": (-3, 40), "bias": (1, 16, 1, 1)}),
}


@needs_plugin
@pytest.mark.parametrize("name", CASES)
def test_convolutions_agree_with_the_interpreter(backend, name):
    shape, weight, more = CASES[name]
    mod = conv(shape, weight, **more)
    part = backend.partition(mod)
    (func,) = externals(part)
    assert Graph(func).kernels[0].name == "npu.conv2d"
    assert part["main"].body.op == relay.GlobalVar("tvmgen_default_npu_main_0")
    x = RNG.integers(-128, 128, shape, "int8")
    want = relay.create_executor("debug", mod).evaluate()(x).numpy()
    assert len(np.unique(want)) > 3 or want.size < 9
    np.testing.assert_array_equal(run(part, x), want)


@needs_plugin
def test_the_example(capsys):
    npu.main()
    assert "agree in every byte" in capsys.readouterr().out


def test_what_the_machine_does_not_compute_stays(backend):
    kept = [
        conv((1, 4, 6, 6), (4, 1, 3, 3), groups=4),
        conv((1, 4, 6, 6), (4, 4, 3, 3), weight_zero=1),
        conv((1, 256, 4, 4), (4, 256, 3, 3)),
        conv((1, 4, 6, 6), (4, 4, 3, 3), bias=(4, 4)),
    ]
    assert [len(externals(backend.partition(mod))) for mod in kept] == [0] * 4


# ---- programs that are nonsense


def instruction(op, *fields, pad=0, tensor=0):
    return struct.pack("<BBH7i", op, pad, tensor, *fields, *[0] * (7 - len(fields))).hex()


WRONG = {
    "zz" * 32: "is no hexadecimal text",
    "00": "has no whole instructions",
    instruction(0): "instruction 0 of 'k' is none of this machine",
    instruction(1, 0, 1, 1, tensor=9): "loads a tensor that its kernel does not read",
    instruction(1, 60, 1, 8, 0, 0, 0, 1): "loads from beyond a tensor",
    instruction(1, 0, 1, 8, 0, 65532, 0, 1): "loads beyond a scratchpad",
    instruction(1, 0, 1, 8, 0, 0, 0, 1, pad=3): "loads beyond a scratchpad",
    instruction(1, 0, 2, 8, 2**31 - 1, 0, 8, 1): "loads from beyond a tensor",
    instruction(2, 0, 70000, 1, 0, 0, 0, 0): "fills beyond a scratchpad",
    instruction(3, 0, 1, 8, 0, 0, 0, 1, tensor=0): "stores into a tensor that its kernel does not give",
    instruction(3, 61, 1, 8, 0, 0, 0, 1, tensor=1): "stores beyond a tensor",
    instruction(3, 0, 1, 8, 0, -1, 0, 1, tensor=1): "stores from beyond a scratchpad",
    instruction(4, 64, 0): "reads a bias that is not there",
    instruction(4, 0, 2): "reads a bias that is not there",
    instruction(5, 0, 5000, 1, 0, 16, 1, 0): "multiplies beyond a scratchpad",
    instruction(5, 0, 16, 1, 0, 16, 1, -1): "multiplies beyond a scratchpad",
    instruction(6, 0, 65500, 0, 1, 16): "reads multipliers that are not there",
    instruction(6, 0, 0, 65500, 1, 16): "writes beyond a scratchpad",
}


@needs_plugin
@pytest.mark.parametrize("program", WRONG)
def test_programs_that_are_nonsense(program):
    def generate(func):
        g = Graph(func)
        tensors = [{"name": n, "shape": [64], "dtype": "int8"} for n in ("x", "y")]
        kernel = {"name": "k", "inputs": [0], "outputs": [1], "program": program}
        text = {"version": 1, "tensors": tensors, "inputs": [0], "constants": [], "outputs": [1], "kernels": [kernel]}
        return Module("npu", json.dumps({**text, "symbol": g.symbol}), {})

    lathe.register_func("relay.ext.npu_wrong", generate, override=True)
    lathe.ir.register_op_attr("negative", "target.npu_wrong", lambda e: True)
    x = relay.var("x", shape=(64,), dtype="int8")
    mod = lathe.IRModule.from_expr(relay.Function([x], relay.negative(x)))
    mod = relay.transform.PartitionGraph()(relay.transform.AnnotateTarget("npu_wrong")(mod))
    with pytest.raises(lathe.error.LatheError, match=WRONG[program]):
        run(mod, np.zeros(64, "int8"))


# ---- UMA


class Doubler(UMABackend):
    """Takes x + x."""

    def __init__(self, generate=None, fmt="c"):
        super().__init__()
        self.seen = []
        watch = lambda phase: lambda mod: self.seen.append((phase, len(externals(mod)))) or mod  # noqa: E731
        for phase in (PassPhase.POST_PARTITIONING_0, PassPhase.PRE_PARTITIONING):
            self._register_relay_pass(phase, watch(phase))
        self._register_target_attr("lanes", 4)
        self._register_pattern("double", is_op("add")(wildcard(), wildcard()), lambda e: e.args[0] == e.args[1])
        if generate:
            self._register_codegen(fmt=fmt, generate=generate)

    @property
    def target_name(self):
        return "uma_doubler"


def doubled(func):
    """C for it, as text."""
    g = Graph(func)
    return (
        f"#include <stdint.h>\nint32_t {g.symbol}(const float *x, float *y)\n"
        "{ for (int i = 0; i < 6; i++) y[i] = 2 * x[i]; return 0; }\n"
    )


@pytest.mark.parametrize("generate", [doubled, lambda f: CSource(doubled(f))])
def test_a_backend_in_a_class(generate):
    assert uma_available()
    made = Doubler(generate)
    made.register()
    x, y = relay.var("x", shape=(6,)), relay.var("y", shape=(6,))
    part = made.partition(lathe.IRModule.from_expr(relay.Function([x, y], relay.exp(x + x) + y)))
    assert made.seen == [(PassPhase.PRE_PARTITIONING, 0), (PassPhase.POST_PARTITIONING_0, 1)]
    assert made.target_attrs == {"lanes": 4}
    a, b = (RNG.standard_normal(6).astype("float32") for _ in range(2))
    m = graph_executor.GraphModule(relay.build(part, target="llvm")["default"](lathe.cpu(0)))
    m.run(x=a, y=b)
    np.testing.assert_allclose(m.get_output(0).numpy(), np.exp(2 * a) + b, rtol=1e-6)


def test_what_a_backend_may_not_do():
    refusals = [
        (lambda b: b.register(), "has no code generator"),
        (lambda b: b._register_codegen(fmt="vhdl", generate=doubled), "makes c or module, not 'vhdl'"),
        (lambda b: b._register_codegen(fmt="c", includes=lambda: ""), "takes generate"),
        (lambda b: b._register_tir_pass(PassPhase.TIR_PHASE_0, None), "passes over the loops"),
        (lambda b: b._register_operator_strategy("nn.dense", None), "have no strategies"),
        (lambda b: b._register_relay_pass(PassPhase.TIR_PHASE_0, None), "TIR_PHASE_0 is no phase"),
        (lambda b: b._register_target_attr("x", 1.5), "is a text, a number or a bool"),
    ]
    for act, match in refusals:
        with pytest.raises(lathe.error.LatheError, match=match):
            act(Doubler())
