"""Products of bytes by the dot products of the target: the rule of the sketches, its names in MetaSchedule, and what
the instructions give for every pair of signs, beside numpy."""

import numpy as np
import pytest

import lathe as tvm
from lathe import meta_schedule as ms
from lathe import te, tir

TARGET = f"{tvm.target.Target()} -num-cores=1"


def product(m, n, k, a, b):
    x, y, r = te.placeholder((m, k), a, name="A"), te.placeholder((n, k), b, name="B"), te.reduce_axis((0, k), "k")
    c = te.compute(
        (m, n), lambda i, j: te.sum(x[i, r].astype("int32") * y[j, r].astype("int32"), axis=r), name="C"
    )
    return tvm.IRModule({"main": te.create_prim_func([x, y, c])})


def numbers(shape, dtype, seed):
    """All of the dtype's range; the first row its ends."""
    info = np.iinfo(dtype)
    out = np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)
    out[0] = np.where(np.arange(shape[1]) % 2, info.min, info.max)
    return out


def has_dots():
    context = ms.TuneContext(product(8, 16, 16, "int8", "int8"), target=tvm.target.Target(TARGET))
    rule = ms.schedule_rule.DotProducts()
    rule._initialize_with_tune_context(context)
    sch = tir.Schedule(context.mod)
    return len(rule.apply(sch, sch.get_block("C"))) > 1


@pytest.mark.parametrize("a", ["int8", "uint8"])
@pytest.mark.parametrize("b", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(6, 32, 20), (5, 13, 11)])
def test_every_pair_of_signs(a, b, shape):
    if not has_dots():
        pytest.skip("the target has no dot products of bytes")
    m, n, k = shape
    mod = product(m, n, k, a, b)
    rule = ms.schedule_rule.MultiLevelTilingWithIntrin("dot_4x4_i8i8s32_sdot")
    rule._initialize_with_tune_context(ms.TuneContext(mod, target=tvm.target.Target(TARGET)))
    sch = tir.Schedule(mod)
    made = [s for s in rule.apply(sch, sch.get_block("C")) if "tensorize" in str(s.trace)]
    x, y = numbers((m, k), a, 1), numbers((n, k), b, 2)
    expected = x.astype("int64") @ y.astype("int64").T
    assert made
    for s in made[:2]:
        out = tvm.nd.empty((m, n), "int32")
        again = tir.Schedule(mod)
        names = {"tir": tir}
        exec(str(s.trace), names)  # pylint: disable=exec-used  # the trace as Python runs, too
        names["apply_trace"](again)
        tvm.build(again.mod, target=TARGET)(tvm.nd.array(x), tvm.nd.array(y), out)
        np.testing.assert_array_equal(out.numpy(), expected)


def test_other_intrinsics_are_refused():
    with pytest.raises(tvm.error.LatheError, match="four bytes, not for 'wmma_sync"):
        ms.schedule_rule.MultiLevelTilingWithIntrin("wmma_sync_16x16x16_f16f16f32")
    sch = tir.Schedule(product(8, 16, 16, "int8", "int8"))
    with pytest.raises(tvm.error.LatheError, match="there is no tensor intrinsic 'dot_0x'"):
        sch.tensorize(sch.get_loops(sch.get_block("C"))[1], "dot_0x")


def test_rounding_away_from_zero():
    x = np.array([0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, -0.49999997, 8388609.0, 3e9, np.inf, -0.0], "float32")
    a = te.placeholder((12,), name="A")
    s = tir.Schedule(te.create_prim_func([a, te.compute((12,), lambda i: te.round(a[i]), name="B")]))
    (i,) = s.get_loops(s.get_block("B"))
    s.vectorize(s.split(i, [None, 4])[1])
    out = tvm.nd.empty((12,))
    tvm.build(s.mod, target=TARGET)(tvm.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), np.copysign(np.floor(np.abs(x.astype("float64")) + 0.5), x))
