"""Passes: the context, instruments, user passes, and that every pass keeps what a model computes."""

import numpy as np
import pytest

import lathe
from lathe import error, relay
from lathe.contrib import graph_executor
from lathe.ir.instrument import PassTimingInstrument, PrintAfterAll, PrintBeforeAll, pass_instrument
from lathe.transform import PassContext, Sequential

RNG = np.random.default_rng(3)
PASSES = sorted(row[0] for row in lathe._ffi.call("pass_table"))
#: Passes that want to be told something, or that state a bound of their own.
OPTIONS = {
    "ConvertLayout": {"desired_layouts": {"nn.conv2d": ["NHWC", "default"]}},
    "AnnotateTarget": {"targets": "other"},
    "MergeComposite": {"pattern_table": []},
}
BOUND = {"FastMath": 1e-3, "ToMixedPrecision": 2e-2}


def network():
    """Something for every pass: batch norm, a residual, parallel branches, constants, casts, lets."""
    def weight(*shape):
        return relay.const(RNG.normal(size=shape).astype("float32") * 0.3)

    x = relay.var("x", shape=(1, 8, 8, 8))
    stem = relay.nn.conv2d(x, weight(8, 8, 3, 3), padding=(1, 1))
    norm = relay.nn.batch_norm(stem, *[relay.const(RNG.uniform(0.5, 1.5, 8).astype("float32")) for _ in range(4)])[0]
    act = relay.nn.relu(norm) + x
    a = relay.nn.conv2d(act, weight(4, 8, 1, 1))
    b = relay.nn.conv2d(act, weight(4, 8, 1, 1))
    both = relay.concatenate([relay.nn.bias_add(a, relay.const(np.ones(4, "float32"))), relay.tanh(b)], axis=1)
    scaled = both * (relay.const(np.float32(2)) + relay.const(np.float32(1)))
    again = relay.exp(relay.negative(relay.nn.relu(scaled))) + relay.exp(relay.negative(relay.nn.relu(scaled)))
    wide = relay.cast(relay.cast(again, "float64"), "float32")
    y = relay.var("y")
    let = relay.Let(y, relay.nn.global_avg_pool2d(wide), relay.reshape(relay.reshape(y, (1, -1)), (1, 8)))
    d1, d2 = relay.nn.dense(let, weight(5, 8)), relay.nn.dense(let, weight(5, 8))
    out = relay.nn.softmax(relay.nn.dropout(d1 + d2, 0.3))
    return relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], out)))


@pytest.fixture(scope="module")
def net():
    mod = network()
    x = RNG.normal(size=(1, 8, 8, 8)).astype("float32")
    want = relay.create_executor("debug", mod=mod).evaluate()(x).numpy()
    return mod, x, want


def run(mod, x, level=3, **options):
    with PassContext(opt_level=level, **options):
        lib = relay.build(mod)
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.set_input(0, x)
    m.run()
    return m.get_output(0).numpy()


def relative(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


# ---- every pass


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_the_result(net, name):
    mod, x, want = net
    before = mod.astext()
    with PassContext(opt_level=4):
        out = getattr(relay.transform, name)(**OPTIONS.get(name, {}))(mod)
    got = relay.create_executor("debug", mod=relay.transform.InferType()(out)).evaluate()(x).numpy()
    assert relative(got, want) <= BOUND.get(name, 1e-5)
    assert mod.astext() == before, "a pass leaves the module it is given alone"


@pytest.mark.parametrize("name", PASSES)
def test_a_model_runs_without_a_pass(net, name):
    mod, x, want = net
    assert relative(run(mod, x, 3, disabled_pass=[name]), want) <= 1e-4


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels_agree(net, level):
    mod, x, want = net
    assert relative(run(mod, x, level), want) <= 1e-4


def test_level_4_states_its_bound(net):
    mod, x, want = net
    assert relative(run(mod, x, 4), want) <= 1e-3


def test_everything_disabled(net):
    mod, x, want = net
    assert relative(run(mod, x, 3, disabled_pass=PASSES), want) <= 1e-4


def test_the_effect_of_passes(net):
    mod, _, _ = net
    ops = relay.analysis.list_op_freqs
    assert "nn.batch_norm" in ops(mod) and "nn.batch_norm" not in ops(relay.transform.SimplifyInference()(mod))
    assert ops(mod)["exp"] == 2 and ops(relay.transform.EliminateCommonSubexpr()(mod))["exp"] == 1
    one = relay.transform.CombineParallelConv2D(min_num_branches=2)(mod)
    assert ops(mod)["nn.conv2d"] == 3 and ops(one)["nn.conv2d"] == 2
    assert ops(relay.transform.FastMath()(mod)).get("fast_exp") == 2
    nhwc = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)
    layouts = []
    relay.analysis.post_order_visit(
        nhwc["main"],
        lambda n: (
            layouts.append(n.attrs.data_layout)
            if isinstance(n, relay.Call) and getattr(n.op, "name", "") == "nn.conv2d"
            else None
        ),
    )
    assert set(layouts) == {"NHWC"}
    fused = relay.transform.FuseOps(fuse_opt_level=2)(relay.transform.SimplifyInference()(mod))
    assert "Primitive=1" in str(fused) and "Primitive" not in str(relay.transform.DefuseOps()(fused))


# ---- the context


def test_context_settings():
    assert PassContext.current().opt_level == 2
    with PassContext(opt_level=3, required_pass=["FastMath"], disabled_pass=["FuseOps"]) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=0):
            assert PassContext.current().opt_level == 0
        assert PassContext.current() is outer
        assert outer.pass_enabled(relay.transform.FastMath().info) and not outer.pass_enabled(
            relay.transform.FuseOps().info
        )
        assert outer.pass_enabled(relay.transform.FoldConstant().info)
    assert PassContext.current().opt_level == 2
    assert "relay.FuseOps.max_depth" in PassContext.list_configs()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"config": {"relay.FuseOps.max_dept": 3}}, ["relay.FuseOps.max_dept", "relay.FuseOps.max_depth"]),
        ({"config": {"relay.FuseOps.max_depth": "many"}}, ["relay.FuseOps.max_depth", "many"]),
        ({"disabled_pass": ["FuseOp"]}, ["FuseOp", "FuseOps"]),
        ({"required_pass": ["FastMat"]}, ["FastMat", "FastMath"]),
        ({"opt_level": 9}, ["9"]),
        ({"disabled_pass": "FuseOps"}, ["list"]),
    ],
)
def test_context_refuses(options, words):
    with pytest.raises(error.LatheError) as e:
        PassContext(**options)
    for w in words:
        assert w in str(e.value)


def test_settings_that_change_nothing_say_so():
    with pytest.warns(UserWarning, match="relay.backend.use_auto_scheduler"):
        with PassContext(config={"relay.backend.use_auto_scheduler": True}):
            pass


def test_max_depth_limits_fusion():
    x = relay.var("x", shape=(4,))
    e = x
    for _ in range(10):
        e = relay.exp(relay.negative(e))
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], e)))
    with PassContext(opt_level=3, config={"relay.FuseOps.max_depth": 4}):
        small = relay.transform.FuseOps()(mod)
    with PassContext(opt_level=3):
        large = relay.transform.FuseOps()(mod)
    assert str(small).count("Primitive=1") >= 5 and str(large).count("Primitive=1") == 1


def test_unknown_options_of_passes():
    with pytest.raises(error.ArgumentError, match="FuseOps has no option 'level'; it has"):
        relay.transform.FuseOps(level=2)
    with pytest.raises(error.ArgumentError, match="there is no pass 'Nothing'"):
        lathe.ir.transform.BuiltinPass("Nothing", {})
    with pytest.raises(error.TypeError, match="takes an IRModule"):
        relay.transform.InferType()(relay.var("x"))


# ---- instruments


def test_timing(net):
    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[timing]):
        relay.build(net[0])
    text = timing.render()
    assert "FuseOps: " in text and " ms" in text and text.count("\n") > 5
    with PassContext(instruments=[timing]):
        Sequential([relay.transform.InferType(), relay.transform.FoldConstant()])(net[0])
    lines = timing.render().splitlines()
    assert lines[0].startswith("sequential") and lines[1].startswith("  InferType") and len(lines) == 3


def test_printing(net, capsys):
    with PassContext(opt_level=3, instruments=[PrintBeforeAll(), PrintAfterAll()]):
        relay.transform.SimplifyInference()(net[0])
    before, after = capsys.readouterr().out.split("After pass SimplifyInference:")
    assert "Before pass SimplifyInference:" in before and "nn.batch_norm" in before and "nn.batch_norm" not in after
    with PassContext(opt_level=3, instruments=[PrintAfterAll(["FuseOps"])]):
        relay.build(net[0])
    shown = capsys.readouterr().out
    assert shown.count("After pass ") == 1 and shown.startswith("After pass FuseOps:") and "Primitive=1" in shown


def test_callbacks_of_a_user(net):
    @pass_instrument
    class Watch:
        def __init__(self):
            self.events, self.entered = [], 0

        def enter_pass_ctx(self):
            self.entered += 1

        def exit_pass_ctx(self):
            self.entered += 10

        def should_run(self, mod, info):
            return info.name != "FuseOps"

        def run_before_pass(self, mod, info):
            self.events.append(("before", info.name, "main" in mod))

        def run_after_pass(self, mod, info):
            self.events.append(("after", info.name, isinstance(mod["main"], relay.Function)))

    w = Watch()
    got = run(net[0], net[1], instruments=[w])
    names = [e[1] for e in w.events]
    assert w.entered == 11 and all(e[2] for e in w.events)
    assert "FoldConstant" in names and "FuseOps" not in names
    assert names.count("SimplifyInference") == 2 and relative(got, net[2]) <= 1e-4


class Oops(Exception):
    pass


@pytest.mark.parametrize("method", ["should_run", "run_before_pass", "run_after_pass"])
def test_exceptions_of_instruments_come_out_as_themselves(net, method):
    raised = Oops("mine")

    def fail(self, mod, info):
        if info.name == "FoldConstant":
            raise raised
        return True

    instrument = pass_instrument(type("Failing", (), {method: fail}))()
    for work in (lambda: relay.build(net[0]), lambda: relay.transform.FoldConstant()(net[0])):
        with pytest.raises(Oops) as e:
            with PassContext(opt_level=3, instruments=[instrument]):
                work()
        assert e.value is raised
    assert relative(run(net[0], net[1]), net[2]) <= 1e-4, "everything works afterwards"


def test_instruments_may_compile(net):
    """A callback in the middle of a build may itself use the compiler."""
    built = []

    @pass_instrument
    class Nested:
        def run_before_pass(self, mod, info):
            if info.name == "FuseOps" and not built:
                x = relay.var("x", shape=(3,))
                built.append(None)
                with PassContext(opt_level=1):
                    built[0] = (
                        relay.create_executor("graph")
                        .evaluate(relay.Function([x], relay.exp(x)))(np.zeros(3, "float32"))
                        .numpy()
                    )

    assert relative(run(net[0], net[1], instruments=[Nested()]), net[2]) <= 1e-4
    np.testing.assert_array_equal(built[0], np.ones(3))


# ---- passes of a user


@relay.transform.function_pass(opt_level=1)
class ReplaceRelu:
    def __init__(self, bound=6.0):
        self.bound = bound

    def transform_function(self, func, mod, ctx):
        bound = self.bound

        class Replace(relay.ExprMutator):
            def visit_call(self, call):
                call = super().visit_call(call)
                return relay.clip(call.args[0], 0.0, bound) if call.op == relay.op.get("nn.relu") else call

        return Replace().visit(func)


def test_function_pass(net):
    p = ReplaceRelu(1e30)
    assert p.info.name == "ReplaceRelu" and p.info.opt_level == 1 and p.bound == 1e30
    out = p(net[0])
    assert "nn.relu" not in str(out) and "nn.relu" in str(net[0])
    assert relative(run(out, net[1]), net[2]) <= 1e-4

    @relay.transform.function_pass(opt_level=0, name="Same")
    def same(func, mod, ctx):
        assert isinstance(ctx, PassContext) and "main" in mod
        return func

    assert same.info.name == "Same" and lathe.ir.structural_equal(same(net[0])["main"], net[0]["main"])

    @relay.transform.function_pass(opt_level=0)
    def nothing(func, mod, ctx):
        return None

    with pytest.raises(error.TypeError, match="nothing returned a NoneType for function 'main'"):
        nothing(net[0])


def test_module_pass(net):
    @lathe.transform.module_pass(opt_level=2, name="AddHelper")
    def add_helper(mod, ctx):
        x = relay.var("x", shape=(2,))
        mod["helper"] = relay.Function([x], x)
        return mod

    out = add_helper(net[0])
    assert "helper" in out and "helper" not in net[0]

    @lathe.transform.module_pass(opt_level=0)
    def broken(mod, ctx):
        raise Oops("inside")

    with pytest.raises(Oops, match="inside"):
        Sequential([broken])(net[0])
    with pytest.raises(error.ArgumentError, match="opt_level must be given"):
        lathe.transform.module_pass(lambda m, c: m)


def test_sequential_follows_the_context(net):
    ran = []

    def make(name, level):
        @lathe.transform.module_pass(opt_level=level, name=name)
        def p(mod, ctx):
            ran.append(name)
            return mod

        return p

    seq = Sequential([make("a", 0), make("b", 2), make("c", 3), make("d", 1)], name="mine")
    for options, want in (({"opt_level": 3}, "abcd"), ({"opt_level": 1}, "ad"), ({"opt_level": 0}, "a")):
        ran.clear()
        with PassContext(**options):
            seq(net[0])
        assert "".join(ran) == want
    ran.clear()
    with PassContext(opt_level=3):
        Sequential([seq, relay.transform.PrintIR("shown") if hasattr(relay.transform, "PrintIR") else make("e", 0)])(
            net[0]
        )
    assert "".join(ran).startswith("abcd")


def test_optimize_gives_what_build_compiles(net):
    with PassContext(opt_level=3):
        out, _ = relay.optimize(net[0])
    assert "Primitive=1" in str(out)


def test_a_pass_inside_the_pipeline(net):
    seen = []

    @relay.transform.function_pass(opt_level=1, name="Doubled")
    def doubled(func, mod, ctx):
        seen.append(str(func))
        return relay.Function(func.params, func.body * relay.const(np.float32(2)))

    x = relay.var("x", shape=(4,))
    mod = lathe.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    ctx = PassContext(opt_level=3)
    ctx.add_pass(doubled, "SimplifyInference")
    with ctx:
        model = graph_executor.GraphModule(relay.build(mod)["default"](lathe.cpu(0)))
    model.set_input("x", np.arange(4, dtype="float32"))
    model.run()
    np.testing.assert_array_equal(model.get_output(0).numpy(), 2 * np.arange(4, dtype="float32"))
    assert len(seen) == 1
    with pytest.raises(error.ArgumentError, match="the pipeline has no pass 'Nowhere'"):
        ctx.add_pass(doubled, "Nowhere")

    @relay.transform.function_pass(opt_level=0, name="Broken")
    def broken(func, mod, ctx):
        raise KeyError("mine")

    ctx.add_pass(broken, "InferType")
    with pytest.raises(KeyError, match="mine"), ctx:
        relay.build(mod)


@pytest.mark.parametrize("quantized", [False, True])
def test_flatten_atrous_conv(quantized):
    """A convolution over blocks in the batch, as the interpreter has it, and as one with dilation, compiled."""
    rng = np.random.default_rng(0)
    if quantized:
        x = relay.var("x", shape=(1, 9, 8, 4), dtype="int8")
        w = relay.const(rng.integers(-100, 100, (3, 3, 4, 5)).astype("int8"))
        y = relay.nn.space_to_batch_nd(x, [2, 2], [[2, 3], [2, 2]], pad_value=-7)
        y = relay.qnn.op.conv2d(y, w, relay.const(-7), relay.const(0), relay.const(0.5), relay.const(0.25), (3, 3), 5,
                                data_layout="NHWC", kernel_layout="HWIO")
        y = relay.qnn.op.requantize(y, relay.const(0.125), relay.const(0), relay.const(40.0), relay.const(3), axis=3)
        data = rng.integers(-128, 127, (1, 9, 8, 4)).astype("int8")
    else:
        x = relay.var("x", shape=(1, 9, 8, 4))
        w = relay.const(rng.normal(size=(3, 3, 4, 5)).astype("float32"))
        y = relay.nn.space_to_batch_nd(x, [2, 2], [[2, 3], [2, 2]])
        y = relay.nn.conv2d(y, w, kernel_size=(3, 3), channels=5, data_layout="NHWC", kernel_layout="HWIO")
        y = relay.nn.relu(relay.nn.bias_add(y, relay.const(rng.normal(size=5).astype("float32")), axis=3))
        data = rng.normal(size=(1, 9, 8, 4)).astype("float32")
    y = relay.nn.batch_to_space_nd(y, [2, 2], [[0, 1], [0, 0]])
    mod = lathe.IRModule.from_expr(relay.Function([x], y))
    flat = relay.transform.FlattenAtrousConv()(mod)
    assert "dilation=[2, 2]" in str(flat) and "batch" not in str(flat)
    want = relay.create_executor("debug", mod).evaluate()(data).numpy()
    have = relay.create_executor("graph", flat).evaluate()(data).numpy()
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
