"""A script of a user's, with types: tensor expressions, schedules, loop programs."""
import numpy as np

import lathe
from lathe import te, tir


def low(n: int) -> tir.PrimFunc:
    A = te.placeholder((n,), name="A", dtype="float32")
    B = te.compute((n,), lambda i: te.exp(A[i]) + tir.if_then_else(i < 3, A[i], 0.0), name="B")
    s = te.create_schedule(B.op)
    xo, xi = s[B].split(B.op.axis[0], factor=4)
    s[B].vectorize(xi)
    s[B].parallel(xo)
    fn = lathe.build(s, [A, B], target="llvm", name="f")
    fn(lathe.nd.array(np.zeros(n, "float32")), lathe.nd.empty((n,)))
    func = te.create_prim_func([A, B])
    sch = tir.Schedule(func)
    blk = sch.get_block("B")
    (i,) = sch.get_loops(blk)
    o, inner = sch.split(i, factors=[None, 4])
    sch.vectorize(inner)
    sch.mod.show()
    return func


def count(func: tir.PrimFunc) -> int:
    found = []

    def visit(node: object) -> None:
        if isinstance(node, tir.BufferStore):
            found.append(node.buffer.name)

    tir.stmt_functor.post_order_visit(func.body, visit)
    return len(found)


def constants(x: tir.Var) -> bool:
    analyzer = lathe.arith.Analyzer()
    analyzer.bind(x, lathe.ir.Range(0, 8))
    e = tir.const(1, "int32") + x * 2
    return analyzer.can_prove(e < 16) and lathe.ir.structural_equal(e, e, map_free_vars=True)
