"""A backend to copy: a "vector engine" that multiplies matrices, with the three steps of docs/byoc.md.

    PYTHONPATH=python python3 examples/byoc/vector_engine.py

The engine takes nn.dense with a bias and a relu behind it.  Its code generator writes C; one for real hardware would
write calls of the vendor's library, or bytes for a plugin of the runtime (backends/openblas.c)."""

import numpy as np

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.relay.backend.contrib import CSource, Graph
from lathe.relay.dataflow_pattern import is_constant, is_op, wildcard
from lathe.relay.op.contrib import partition_for, register_pattern_table

NAME = "vector_engine"
LANES = 8  # of the engine: the number of units is a multiple of it


# ---- 1. what it can do


def fits(expr):
    """Is the match one that the engine computes?  expr is its last call."""
    while expr.op.name != "nn.dense":
        expr = next(a for a in expr.args if isinstance(a, relay.Call))
    data, weight = (a.checked_type for a in expr.args)
    return data.dtype == "float32" and len(data.shape) == 2 and int(weight.shape[0]) % LANES == 0


@register_pattern_table(NAME)
def patterns():
    """The longest first: earlier rows win."""
    dense = is_op("nn.dense")(wildcard(), is_constant())
    biased = is_op("nn.bias_add")(dense, is_constant()) | is_op("add")(dense, is_constant())
    return [
        (f"{NAME}.dense_bias_relu", is_op("nn.relu")(biased), fits),
        (f"{NAME}.dense_bias", biased, fits),
        (f"{NAME}.dense", dense, fits),
    ]


# ---- 2. how it does it

KERNEL = """
  for (int i = 0; i < {rows}; i++)
    for (int j = 0; j < {units}; j += {lanes})
      for (int lane = 0; lane < {lanes}; lane++) {{ /* one instruction of the engine */
        float sum = {bias};
        for (int k = 0; k < {depth}; k++) sum += {data}[i * {depth} + k] * {weight}[(j + lane) * {depth} + k];
        {out}[i * {units} + j + lane] = {result};
      }}
"""


def kernel_source(k, name):
    """C for one kernel; name gives the variable of a tensor."""
    rows, units = k.outputs[0].shape
    return KERNEL.format(
        rows=rows, units=units, lanes=LANES, depth=k.inputs[0].shape[1],
        data=name(k.inputs[0]), weight=name(k.inputs[1]), out=name(k.outputs[0]),
        bias=f"{name(k.inputs[2])}[j + lane]" if len(k.inputs) > 2 else "0",
        result="sum < 0 ? 0 : sum" if "nn.relu" in k.ops else "sum",
    )  # fmt: skip


@lathe.register_func(f"relay.ext.{NAME}")
def generate(func):
    """A function with Compiler="vector_engine" as C: operands, constants and results come as pointers."""
    g = Graph(func)
    name = lambda t: f"t{t.id}"  # noqa: E731
    params = [f"const float *{name(t)}" for t in g.inputs + g.constants] + [f"float *{name(t)}" for t in g.outputs]
    between = [t for k in g.kernels for t in k.outputs if t not in g.outputs]
    memory = "".join(f"  float {name(t)}[{int(np.prod(t.shape))}];\n" for t in between)
    body = "".join(kernel_source(k, name) for k in g.kernels)
    return CSource(f"#include <stdint.h>\nint32_t {g.symbol}({', '.join(params)})\n{{\n{memory}{body}  return 0;\n}}\n")


# ---- 3. a model that uses it


def main():
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((32, 16)).astype("float32"), rng.standard_normal((10, 32)).astype("float32")]
    bias = rng.standard_normal(32).astype("float32")
    x = relay.var("x", shape=(4, 16))
    hidden = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, relay.const(weights[0])), relay.const(bias)))
    out = relay.nn.softmax(relay.nn.dense(hidden, relay.const(weights[1])))  # 10 units do not fit: Lathe has them
    mod = partition_for(NAME, lathe.IRModule.from_expr(relay.Function([x], out)))
    print(mod)

    model = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](lathe.cpu(0)))
    data = rng.standard_normal((4, 16)).astype("float32")
    model.run(x=data)
    scores = np.maximum(data @ weights[0].T + bias, 0) @ weights[1].T
    want = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(model.get_output(0).numpy(), want / want.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
    print("the engine and numpy agree")


if __name__ == "__main__":
    main()
