"""Every call of the compiler survives the failure of its allocations.

A program that uses everything runs with each of its calls tried over and over, the
1st, 2nd, 3rd … allocation failing, until the call succeeds.  A failure must be a
MemoryError, leave no handle behind, and leave the call working."""

import gc

import numpy as np
import pytest

import lathe as tvm
from lathe import error, relay, te, tir
from lathe._ffi import call, context, functions
from lathe._ffi.core import Context

import tflite_writer

#: Calls that start processes or work on files and databases: what they run is outside this process.
OUTSIDE = {"nvrtc", "built_export", "compiled_export", "tune_network", "tune_program", "tune_measure",
           "tune_measure_plans", "tune_answer", "tuned_plans", "tuned_trace", "db_export", "db_import", "db_list",
           "db_merge", "db_prune", "db_show", "onnx_quantize", "onnx_compare",
           "micro_project", "micro_build", "micro_run", "micro_size", "aot_source_cost"}
#: A call with more allocations than this is tried at growing distances from here on.
EVERY = 40


def held(c):
    """Handles that are out, but for those that Python gave up and will release at the next call."""
    return c.lib.lathe_object_count(c.ptr) - len(c.dead)


@pytest.fixture
def failing(monkeypatch):
    """Makes allocations fail; gives the set of the functions called."""
    tried = set()
    plain = Context._raw_call

    def hostile(self, name, n, values):
        tried.add(name.decode())
        at = 1
        while name.decode() not in OUTSIDE:
            before = held(self)
            self.lib.lathe_fail_allocation(self.ptr, at)
            try:
                result = plain(self, name, n, values)
            except error.MemoryError:
                assert held(self) == before, f"{name}: a handle is left"
                at += 1 if at < EVERY else at // 4
                continue
            finally:
                self.lib.lathe_fail_allocation(self.ptr, 0)
            return result
        return plain(self, name, n, values)

    monkeypatch.setattr(Context, "_raw_call", hostile)
    gc.disable()  # a collection in the middle of a call would release other handles
    yield tried
    gc.enable()


SIZED = """
@T.prim_func
def sized(a: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        A[i] = T.float32(1)
"""
SCRIPT = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = A[v] + T.float32(offset)
"""


def expressions():
    x, y = tir.Var("x", "int32"), tir.SizeVar("y", "int32")
    e = tir.Select(tir.all(x < y, tir.Not(x.equal(3))), x + 1, tir.Let(x, 2, x * y))
    str(e), e.dtype, tir.exp(e.astype("float32")), tir.Ramp(x, 1, 4), tir.Broadcast(x, 4), tir.StringImm("s")
    call("expr_equal", e, e), call("free_vars", e), tir.max_value("int8"), e.condition
    a = tvm.arith.Analyzer()
    a.bind(x, tvm.ir.Range(0, 8))
    assert str(a.rewrite_simplify(tir.max(x, 9) + 1)) == "10"
    assert a.can_prove(x < 8) and a.const_int_bound(x).max_value == 7
    assert a.modular_set(x * 4).coeff == 4 and len(tvm.arith.detect_linear_equation(x * 3 + y, [x])) == 2
    a.int_set(x * 2 + y, {x: tvm.arith.IntervalSet(0, 7)})
    found = tvm.arith.detect_iter_map([x // 2, x % 2], {x: tvm.ir.Range(0, 8)}, check_level="bijective")
    tvm.arith.inverse_affine_iter_map(found.indices, [tir.Var("a", "int32"), tir.Var("b", "int32")])
    tir.IndexMap.from_func(lambda i, j: (j, i)).map_indices([x, y])
    b = tir.decl_buffer((4, y), "float32", "b")
    b[0, x].producer, b.shape, b.access_ptr("r")


def statements():
    ib = tir.ir_builder.create()
    A = tir.decl_buffer((10,), "float32", "A")
    a = ib.buffer_ptr(A)
    tmp = ib.allocate("float32", (10,), name="tmp")
    with ib.for_range(0, 10) as i:
        tmp[i] = a[i] * 2.0
        with ib.if_scope(i < 5):
            a[i] = ib.let("v", tmp[i] + 1.0)
        with ib.else_scope():
            ib.emit(tir.call_extern("int32", "abort"))
    with ib.while_loop(a[0] < 0.0):
        a[0] = 1.0
    ib.scope_attr(A, "note", 1)
    f = tir.PrimFunc([A], tir.SeqStmt([ib.get(), tir.Evaluate(0)]))
    str(f.body), f.body.seq
    return f


def tensors():
    A = te.placeholder((16, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B", attrs={"note": 1})
    twice = te.comm_reducer(lambda x, y: x + y, lambda t: tir.const(0, t), name="twice")
    k2 = te.reduce_axis((0, 8), name="k2")
    C = te.compute((16,), lambda i: twice(A[i, k2], axis=k2) + B[i], name="C")
    C.op.body[0], B.op.body[0].combiner.name, B.op.axis[0].dom, C.shape
    state = te.placeholder((16,), name="state")
    S = te.scan(te.compute((1,), lambda _: C[0]), te.compute((16,), lambda t: state[t - 1] + C[t]), state)
    S.op.init
    E = te.extern((16,), [S], lambda i, o: tir.BufferStore(o[0], i[0][0], [0]), name="E", dtype="float32")
    str(te.create_prim_func([A, E]))
    a, c = np.ones((16, 8), "float32"), np.zeros(16, "float32")
    te.evaluate([A, C], [a, c])
    assert (c == 16).all()
    return A, B, C


def stages(A, B, C):
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    AA = s.cache_read(A, "global", [B])
    o, i = s[C].split(s[C].op.axis[0], factor=4)
    s[CC].compute_at(s[C], o)
    s[B].compute_root()
    bo, bi = s[B].split(s[B].op.axis[0], nparts=4)
    s[AA].compute_at(s[B], bo)
    s[AA].double_buffer()
    s[AA].storage_align(s[AA].op.axis[0], 16, 0)
    s[B].reorder(bi, s[B].op.reduce_axis[0])
    s[B].unroll(bi), s[B].parallel(bo), s[C].vectorize(i), s[C].pragma(o, "hint", 1)
    s[CC].set_scope("global")
    s[C].origin_op, s.stages, s[B].leaf_iter_vars
    str(tvm.lower(s, [A, C], simple_mode=True))
    s2 = te.create_schedule(B.op)
    ko, ki = s2[B].split(B.op.reduce_axis[0], factor=2)
    s2.rfactor(B, ki)
    s3 = te.create_schedule(C.op)
    s3[B].prefetch(A, B.op.axis[0], 1)
    s3[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    P = te.placeholder((16,), name="P")
    Q = te.compute((16,), lambda i: P[i] + 1.0, name="Q")
    R = te.compute((16,), lambda i: Q[i] + 1.0, name="R")
    s4 = te.create_schedule(R.op)
    s4[Q].compute_inline()
    f = s4[R].fuse(*s4[R].split(R.op.axis[0], factor=4))
    with pytest.raises(error.UnsupportedError):
        s4[R].set_store_predicate(f.var < 16)
    tvm.lower(s4, [P, R])
    s5 = te.create_schedule(R.op)
    s5[Q].transform_layout(lambda i: [i // 4, i % 4])


def intrinsics():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")

    def emit(ins, outs):
        return tir.stmt_seq([outs[0].vstore([0], ins[0].vload([0], "float32x4") + 1.0)])

    intrin = te.decl_tensor_intrin(b.op, emit, name="inc4")
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    o, i = s[B].split(B.op.axis[0], factor=4)
    s[B].tensorize(i, intrin)
    tvm.lower(s, [A, B])


def schedules(f):
    mod = tvm.IRModule({"main": f})
    sch = tir.Schedule(mod, seed=1)
    block = sch.get_block("B")
    (i,) = sch.get_loops(block)
    v = sch.sample_categorical([2, 4], [0.5, 0.5])
    assert sch.get(v) in (2, 4)
    o, i = sch.split(i, [None, v])
    sch.copy().mod, sch.get(o), sch.get(block), str(sch.trace)
    again = tir.Schedule(mod)
    sch.trace.apply_to_schedule(again)
    again.seed(3)
    assert "^^^" in call("schedule_marked", sch._sch, [block, o])
    tir.transform.LowerInitBlock()(mod), call("lower_transforms")
    intrin = tir.TensorIntrin(f, f)
    intrin.desc
    call("schedule_add_intrin", sch._sch, intrin)
    assert len(sch.mod) == 1 and "main" in mod.script()
    tvm.ir.structural_equal(mod["main"], f), tvm.ir.structural_hash(f)
    return sch.mod


def code(mod, tmp_path):
    target = tvm.target.Target("c")
    tvm.target.target._handles.clear()
    func = tvm.build(mod, target=tvm.target.Target("c"))
    func.get_source("c")
    a, b = np.zeros(16, "float32"), np.zeros(16, "float32")
    mod["main"].interpret(a, b)
    func(a, b)
    assert (b == 3).all()
    func.export_library(tmp_path / "lib.c")
    call("build_check", target._h, str(tmp_path / "lib.c")), call("compile_check", target._h, str(tmp_path / "net.c"))
    call("device_parse", "cpu(0)"), call("compile_c_command", "net.c"), call("nearest", "abc", ["abd", "x"])
    target.keys, tvm.target.Target.list_kinds(), call("build_info"), call("lower_passes"), call("intrinsics"), call(
        "primitives"
    )
    call("expr_kinds"), call("stmt_kinds"), call("teop_kinds")


def graphs(tmp_path):
    x, w = relay.var("x", shape=(2, 3)), relay.const(np.ones((4, 3), "float32"))
    y = relay.var("y", relay.TensorType((2, 4)))
    dense = relay.nn.relu(relay.nn.dense(x, w))
    pair = relay.Tuple([relay.Let(y, dense, relay.exp(y)), relay.split(x, [1], axis=1)[0]])
    f = relay.Function([x], relay.If(relay.const(True), pair[0], pair[0]), None, None, {"mine": 1})
    assert f.body.true_branch.checked_type.shape == (2, 4) and f.attrs["mine"] == 1 and relay.free_vars(dense) == [x]
    relay.analysis.post_order_visit(f, lambda n: None)
    relay.FuncType(
        [relay.TupleType([relay.SequenceType(relay.scalar_type("bool"))])], relay.scalar_type("int8")
    ).ret_type
    assert relay.TensorType((2, 3)) == x.checked_type
    relay.Call(relay.Function([x], x), [relay.const(np.ones((2, 3), "float32"))])
    relay.bind(dense, {x: relay.const(np.zeros((2, 3), "float32"))})
    relay.ExprMutator().visit(f)
    call("node_with_args", tvm._ffi.WORLD, dense, [dense.args[0]])
    call("node_infer", tvm._ffi.WORLD, dense), call("node_kinds"), call("type_kinds"), call("op_table")
    mod = tvm.IRModule({"main": relay.Function([x], dense)})
    mod["other"] = relay.Function([x], x)
    str(dense), str(x.checked_type), relay.parse(mod.astext()), mod["main"].params, call("module_copy", mod)
    tvm.ir.structural_equal(mod["main"], f), tvm.ir.structural_hash(f), call("module_ports", mod), relay.GlobalVar(
        "main"
    )
    assert (
        relay.create_executor("debug", mod=mod).evaluate()(np.ones((2, 3), "float32")).numpy().tolist() == [[3] * 4] * 2
    )
    return mod, f


def data_types():
    header, a = relay.GlobalTypeVar("Failing"), relay.TypeVar("a")
    full, none = relay.Constructor("Full", [a, header(a)], header), relay.Constructor("Empty", [], header)
    mod = tvm.IRModule()
    mod[header] = relay.TypeData(header, [a], [full, none])
    x, h, l = relay.var("x", shape=()), relay.var("h"), relay.var("l", header(relay.scalar_type("float32")))
    patterns = [
        relay.PatternTuple([relay.PatternConstructor(full, [relay.PatternVar(h), relay.PatternWildcard()])]),
        relay.PatternWildcard(),
    ]
    match = relay.Match(relay.Tuple([l]), [relay.Clause(p, e) for p, e in zip(patterns, (h, x))])
    mod["main"] = relay.Function(
        [x], relay.Call(relay.Function([l], match, relay.scalar_type("float32")), [full(x, none())])
    )
    assert (
        [c.name_hint for c in mod.get_type("Failing")[1:]] == ["Full", "Empty"]
        and full.tag == 0
        and len(match.clauses) == 2
    )
    assert [
        arrays.numpy()
        for arrays in (relay.create_executor(kind, mod).evaluate()(np.float32(2)) for kind in ("debug", "vm"))
    ] == [2, 2]


def patterns(f):
    from lathe.relay.dataflow_pattern import is_constant, is_op, wildcard

    relu = is_op("nn.relu")(
        is_op("nn.dense")(wildcard(), is_constant()).has_shape((2, 4)).has_dtype("float32").has_attr({"units": 0})
    )
    assert relu.match(f.body)
    assert "clip" in str(relu.rewrite(lambda pre, post, found: relay.clip(post.args[0], 0.0, 9.0), f))
    assert "PartitionedFromPattern" in str(relu.partition(f, {"mine": 1}, check=lambda n: True))
    mod = relay.transform.MergeComposite([("mine.relu", is_op("nn.relu")(wildcard()), lambda n: True)])(
        tvm.IRModule.from_expr(f)
    )
    tvm.ir.register_op_attr("nn.dense", "target.mine", lambda n: True)
    assert "Composite" in str(mod) and "compiler_begin" in str(relay.transform.AnnotateTarget("mine")(mod))


def operators():
    @relay.op.register("failing.twice", args="data", attrs={"factor": 2.0}, fuse=relay.op.ELEMWISE)
    class _:
        def type(data, attrs):
            return data

        def compute(data, attrs):
            return te.compute(data.shape, lambda *i: data(*i) * attrs.factor)

    z = relay.var("z", shape=(relay.Any(),))
    return relay.Function([z], relay.Call("failing.twice", [z]))


def models(mod, twice, tmp_path):
    seen = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_after_pass(self, module, info):
            seen.append(info.name)

    context_ = tvm.transform.PassContext(
        opt_level=3,
        disabled_pass=["AlterOpLayout"],
        required_pass=["FastMath"],
        config={"relay.FuseOps.max_depth": 9},
        instruments=[Watch()],
    )
    with context_:
        relay.transform.FuseOps(fuse_opt_level=2)(mod)
        relay.optimize(mod)
        lib = relay.build(mod)
        relay.build(twice)
    context_.add_pass(tvm.transform.module_pass(lambda mod, _ctx: mod, opt_level=0, name="Same"), "InferType")
    tvm.transform.PassContext.list_configs(), call("pass_table")
    c = context_.for_compiler()
    call("pass_context_time", c), call("pass_run", mod, "InferType", [], c), call("pass_context_time_text", c)
    call("compiled_plans_text", lib._compiled)
    assert (
        "FuseOps" in seen
        and lib.ir_mod["main"]
        and lib.memory()
        and lib.compile_time()
        and lib.get_source("ll" if tvm.runtime.enabled("llvm") else "c")
    )
    from lathe.contrib.debugger import debug_executor

    m = debug_executor.create(None, lib)
    m.set_input(0, np.ones((2, 3), "float32"))
    assert m.compare()[0]
    lib.export_library(tmp_path / "net.so")


def texts():
    assert relay.const(np.array(["a", "ä"])).data.numpy().tolist() == ["a", "ä"]
    assert isinstance(relay.parse_expr("free_var %x: float32; %x * -%x; %x + 1f"), relay.Let)


def imports():
    import pathlib

    digits = pathlib.Path(__file__).resolve().parents[2] / "examples/digits/digits.onnx"
    for model in (digits, digits.read_bytes()):
        mod, params = relay.frontend.from_onnx(model, {"pixels": (1, 1, 8, 8)}, freeze_params=False)
        assert params and mod["main"].params
    call("onnx_ops"), call("tflite_ops")
    model = tflite_writer.Model()
    x, y = model.input("x", (2, 3)), model.tensor("y", (2, 3))
    model.op("EXP", [x], [y])
    model.output(y)
    assert relay.frontend.from_tflite(model.bytes())[0]["main"].params


def ahead_of_time(mod):
    lib = relay.build(mod, "c", executor=relay.backend.Executor("aot"))
    assert len(call("micro_boards")) > 5
    assert call("compiled_aot_report", lib._compiled, "json") and call("compiled_aot_file", lib._compiled, "net", ".c")


def tuning(mod, f):
    c = tvm.transform.PassContext(opt_level=3).for_compiler()
    call("tune_tasks", mod, None, c), call("tune_program_name", f, None)
    sch = call("schedule", f, 1)
    call("tune_rule", sch, "tile", "none", None, 1), call("tune_mutate", call("schedule_trace", sch), 1, None)
    assert call("tune_features", f) and len(call("tune_model", [[1.0], [2.0]], [1.0, 2.0], [[3.0]])) == 1
    assert len(call("tune_learn", ["a{x=1}", "a{x=2}", "a{x=3}"], [1.0, 2.0, 0.0])) == 3


def quantization():
    x = relay.var("x", shape=(2, 3))
    y = relay.nn.relu(relay.nn.dense(x, relay.const(np.ones((4, 3), "float32"))))
    with relay.quantize.qconfig(skip_dense_layer=False):
        assert "qnn.dense" in str(relay.quantize.quantize(tvm.IRModule.from_expr(relay.Function([x], y))))


def test_every_call_survives(failing, tmp_path):
    call("world")
    expressions()
    f = statements()
    f.check()
    stages(*tensors())
    intrinsics()
    g = tvm.script.from_source(SCRIPT, {"offset": 3})
    g = g.with_attr("note", 1)
    sized = tvm.script.from_source(SIZED)
    sized.specialize({sized.params[0]: tir.decl_buffer((16,), "float32")})
    tvm.script.from_source(tvm.IRModule({"main": g}).script())
    code(schedules(g), tmp_path)
    mod, f = graphs(tmp_path)
    data_types()
    patterns(mod["main"])
    tvm.topi.nn.relu(te.placeholder((4,), name="A"))
    models(mod, operators(), tmp_path)
    ahead_of_time(mod)
    tuning(mod, g)
    texts()
    imports()
    quantization()
    missed = {name for name, _, _ in functions()} - failing - OUTSIDE
    assert not missed, f"calls that this test does not make: {sorted(missed)}"
    assert context().busy is False
