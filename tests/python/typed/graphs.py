"""A script of a user's, with types: networks, passes, a library."""
from typing import Any, Dict, Tuple

import numpy as np

import lathe
from lathe import relay
from lathe.contrib import graph_executor


def block(x: relay.Expr, channels: int, name: str) -> relay.Expr:
    w = relay.var(f"{name}_weight")
    x = relay.nn.conv2d(x, w, kernel_size=(3, 3), padding=(1, 1), channels=channels)
    scale, shift = relay.var("g"), relay.var("b")
    mean, variance = relay.var("m"), relay.var("v")
    out, _, _ = relay.nn.batch_norm(x, scale, shift, mean, variance)
    return relay.nn.relu(out)


class Count(relay.ExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def visit_call(self, call: relay.Call) -> None:
        self.n += 1
        super().visit_call(call)


def build() -> Tuple[lathe.IRModule, Dict[str, lathe.nd.NDArray]]:
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
    y = relay.reshape(relay.add(x, relay.const(1.0)), newshape=(1, -1))
    a, b = relay.split(y, 2, axis=1)
    f = relay.Function(relay.analysis.free_vars(relay.concatenate([a, b], axis=1)), relay.concatenate([a, b], axis=1))
    mod = lathe.IRModule.from_expr(f)
    mod = relay.transform.InferType()(mod)
    seq = lathe.transform.Sequential([relay.transform.FoldConstant(), relay.transform.FuseOps(fuse_opt_level=2)])
    with lathe.transform.PassContext(opt_level=3, config={}):
        mod = seq(mod)
    lathe.ir.assert_structural_equal(mod, mod)
    return mod, {}


def run(mod: lathe.IRModule) -> "np.ndarray[Any, Any]":
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params={})
    lib.export_library("x.so")
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.set_input("x", np.zeros((1, 3, 8, 8), "float32"))
    m.run()
    print(m.benchmark(lathe.cpu(0), number=2).mean)
    return m.get_output(0).numpy()
