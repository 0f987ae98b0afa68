"""Functions as values, data types and match: compiled programs against the interpreter and numpy, from text and from
the builders, in one file that runs without the compiler's graph."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.relay.prelude import Prelude
from random_programs import Program


def arrays(result):
    """Tuples spread out."""
    return sum((arrays(r) for r in result), []) if isinstance(result, list) else [np.asarray(result.numpy())]


def everywhere(mod, *args):
    """What the interpreter gives; what the compiled program gives at levels 0 and 3 must be the same."""
    want = arrays(relay.create_executor("debug", mod).evaluate()(*args))
    for kind, level in (("graph", 0), ("vm", 3)):
        with lathe.transform.PassContext(opt_level=level):
            have = arrays(relay.create_executor(kind, mod).evaluate()(*args))
        assert len(have) == len(want)
        for h, w in zip(have, want):
            np.testing.assert_allclose(h, w, rtol=1e-6, atol=1e-6)
    return want


def list_of(mod, items):
    _, cons, nil = mod.get_type("List")
    value = nil()
    for item in reversed(items):
        value = cons(item, value)
    return value


@pytest.fixture(scope="module")
def rows():
    return np.random.RandomState(0).randint(-4, 5, (5, 3)).astype("float32")


def with_main(build):
    """A module with the prelude whose main is what build(mod, prelude, x) gives for the five rows of x."""
    mod = lathe.IRModule()
    p = Prelude(mod)
    x = [relay.var(f"x{i}", shape=(3,)) for i in range(5)]
    mod["main"] = relay.Function(x, build(mod, p, x))
    return mod


def test_prelude_map_and_folds(rows):
    v, a, b = (relay.var(n, shape=(3,)) for n in "vab")

    def build(mod, p, x):
        square = relay.Function([v], v * v - x[0])
        horner = relay.Function([a, b], a * relay.const(2.0) + b)
        items = relay.Call(p.map, [square, list_of(mod, x)])
        return relay.Tuple(
            [
                relay.Call(p.foldl, [horner, relay.zeros_like(x[0]), items]),
                relay.Call(p.foldr, [horner, relay.zeros_like(x[0]), items]),
                relay.Call(p.length, [items]),
            ]
        )

    left, right, n = everywhere(with_main(build), *rows)
    y = rows * rows - rows[0]
    acc, back = np.zeros(3, "float32"), np.zeros(3, "float32")
    for r in y:
        acc = acc * 2 + r
    for r in y[::-1]:
        back = r * 2 + back
    np.testing.assert_array_equal(left, acc)
    np.testing.assert_array_equal(right, back)
    assert n == 5


def test_prelude_lists(rows):
    v = relay.var("v", shape=(3,))
    pair = relay.var("pair", relay.TupleType([relay.TensorType((3,)), relay.scalar_type("int32")]))

    def build(mod, p, x):
        xs = list_of(mod, x)
        positive = relay.Call(p.filter, [relay.Function([v], relay.sum(v) > relay.const(0.0)), xs])
        numbered = relay.Call(
            p.zip,
            [relay.Call(p.rev, [relay.Call(p.concat, [xs, xs])]), list_of(mod, [relay.const(i) for i in range(4)])],
        )
        scaled = relay.Call(p.map, [relay.Function([pair], pair[0] * relay.cast(pair[1], "float32")), numbered])
        four = relay.Call(relay.Call(p.iterate, [relay.Function([v], v + v), relay.const(2)]), [x[1]])
        changed = relay.Call(p.update, [xs, relay.const(2), x[0] - x[4]])
        return relay.Tuple(
            [
                relay.Call(p.length, [positive]),
                relay.Call(p.nth, [scaled, relay.const(3)]),
                four,
                relay.Call(p.nth, [changed, relay.const(2)]),
            ]
        )

    n, third, four, changed = everywhere(with_main(build), *rows)
    assert n == (rows.sum(axis=1) > 0).sum()
    np.testing.assert_array_equal(third, rows[1] * 3)
    np.testing.assert_array_equal(four, rows[1] * 4)
    np.testing.assert_array_equal(changed, rows[0] - rows[4])


def test_prelude_trees_options_and_accumulation():
    mod = lathe.IRModule()
    p = Prelude(mod)
    _, rose = mod.get_type("Tree")
    _, some, none = mod.get_type("Option")
    x, y, a, b, s = (relay.var(n, shape=()) for n in "xyabs")
    leaf = lambda e: rose(e, mod.get_type("List")[2]())
    tree = rose(x, list_of(mod, [leaf(y), rose(x + y, list_of(mod, [leaf(y)]))]))
    down = relay.Function([s], relay.If(s > relay.const(0.0), some(relay.Tuple([s - relay.const(1.0), s * s])), none()))
    squares = relay.Call(p.unfoldl, [down, x, list_of(mod, [])])
    running = relay.Call(p.map_accuml, [relay.Function([a, b], relay.Tuple([a + b, a * b])), relay.const(0.0), squares])
    doubled = relay.Call(p.tmap, [relay.Function([s], s + s), tree])
    last = relay.Call(p.hd, [relay.Call(p.rev, [relay.TupleGetItem(running, 1)])])
    mod["main"] = relay.Function(
        [x, y], relay.Tuple([relay.Call(p.size, [doubled]), relay.TupleGetItem(running, 0), last])
    )
    size, total, product = everywhere(mod, np.float32(4), np.float32(7))
    assert (size, total, product) == (4, 1 + 4 + 9 + 16, (1 + 4 + 9) * 16)


def test_own_type_from_python():
    expr = relay.GlobalTypeVar("Expr")
    num = relay.Constructor("Num", [relay.scalar_type("float32")], expr)
    two = relay.Constructor(
        "Two",
        [
            expr(),
            relay.TupleType([expr(), relay.FuncType([relay.scalar_type("float32")] * 2, relay.scalar_type("float32"))]),
        ],
        expr,
    )
    with pytest.raises(lathe.error.ArgumentError, match="constructor 'Num' belongs to no type yet"):
        num(relay.const(1.0))
    mod = lathe.IRModule()
    mod[expr] = relay.TypeData(expr, [], [num, two])
    e, n, l, r, f = relay.var("e", expr()), relay.var("n"), relay.var("l"), relay.var("r"), relay.var("f")
    value = relay.GlobalVar("value")
    both = relay.PatternConstructor(
        two, [relay.PatternVar(l), relay.PatternTuple([relay.PatternVar(r), relay.PatternVar(f)])]
    )
    match = relay.Match(
        e,
        [
            relay.Clause(relay.PatternConstructor(num, [relay.PatternVar(n)]), n),
            relay.Clause(both, relay.Call(f, [relay.Call(value, [l]), relay.Call(value, [r])])),
        ],
    )
    mod["value"] = relay.Function([e], match, relay.scalar_type("float32"))
    x, a, b = (relay.var(name, shape=()) for name in "xab")
    plus, less = relay.Function([a, b], a + b * x), relay.Function([a, b], a - b)
    tree = two(two(num(x), relay.Tuple([num(relay.const(5.0)), plus])), relay.Tuple([num(relay.const(2.0)), less]))
    mod["main"] = relay.Function([x], relay.Call(value, [tree]))
    assert everywhere(mod, np.float32(3))[0] == 3 + 5 * 3 - 2
    again = relay.parse(mod.astext())
    assert lathe.ir.structural_equal(again["value"], mod["value"])
    clauses = mod["value"].body.clauses
    assert [c.lhs.constructor.name_hint for c in clauses] == ["Num", "Two"] and isinstance(
        clauses[1].lhs.patterns[1], relay.PatternTuple
    )
    assert [c.name_hint for c in mod.get_type("Expr")[1:]] == ["Num", "Two"] and mod.get_type("Expr")[
        2
    ].belong_to == mod.get_type("Expr")[0]


def test_type_parameters_from_python():
    """A tuple takes the place of a parameter as well as a tensor does."""
    a, pair = relay.TypeVar("a"), relay.TupleType([relay.TensorType((2,)), relay.scalar_type("int32")])
    f, v, x, p = (
        relay.var("f", relay.FuncType([a], a)),
        relay.var("v", a),
        relay.var("x", shape=(2,)),
        relay.var("p", pair),
    )
    mod = lathe.IRModule({"twice": relay.Function([f, v], relay.Call(f, [relay.Call(f, [v])]), a, [a])})
    twice = mod.get_global_var("twice")
    step = relay.Function(
        [p], relay.Tuple([relay.TupleGetItem(p, 0) * relay.const(3.0), relay.TupleGetItem(p, 1) + relay.const(1)])
    )
    y = relay.var("y", shape=(2,))
    both = relay.Call(twice, [step, relay.Tuple([x, relay.const(5)])])
    mod["main"] = relay.Function([x], relay.Tuple([relay.Call(twice, [relay.Function([y], y + x), x]), both]))
    value = np.array([1, -2], "float32")
    plain, scaled, count = everywhere(mod, value)
    np.testing.assert_array_equal(plain, 3 * value)
    np.testing.assert_array_equal(scaled, 9 * value)
    assert count == 7


def test_two_types_of_one_name():
    """Modules are apart; only one that is given both refuses."""
    first, second = relay.parse(
        "type T { A(float32), B }\ndef @main(%x: float32) { match (A(%x)) { A(%y) => %y, B => 0f } }"
    ), relay.parse(
        "type T { C(float32, float32) }\ndef @main(%x: float32) { match (C(%x, 2f)) { C(%y, %z) => multiply(%y, %z) } }"
    )
    assert [len(m.get_type("T")) for m in (first, second, first)] == [3, 2, 3]
    assert everywhere(first, np.float32(3))[0] == 3 and everywhere(second, np.float32(3))[0] == 6
    with pytest.raises(lathe.error.TypeError, match="both modules have a type 'T', but not with the same constructors"):
        first["other"] = second["main"]


SIZES = """
type List[A] { Cons(A, List[A]), Nil }
def @parts(%x: Tensor[(n, 2), float32], %l: List[Tensor[(?, 2), float32]], %i: int32) -> List[Tensor[(?, 2), float32]] {
  if (greater(%i, 0)) { @parts(concatenate((%x, %x), axis=0), Cons(%x, %l), subtract(%i, 1)) } else { %l }
}
def @walk(%l: List[Tensor[(?, 2), float32]], %f: fn (Tensor[(?, 2), float32]) -> Tensor[(2), float32]) -> Tensor[(2), float32] {
  match (%l) { Cons(%h, %t) => add(%f(%h), multiply(@walk(%t, %f), 2f)), Nil => zeros(shape=[2], dtype="float32") }
}
def @main(%x: Tensor[(k, 2), float32], %i: int32, %c: bool) {
  let %f = if (%c) { fn (%h: Tensor[(?, 2), float32]) -> Tensor[(2), float32] { sum(nn.relu(%h), axis=[0]) } }
           else { fn (%h: Tensor[(?, 2), float32]) -> Tensor[(2), float32] { add(max(%h, axis=[0]), min(%x, axis=[0])) } };
  @walk(@parts(%x, Nil(), %i), %f)
}
"""


def test_sizes_known_at_run_time():
    mod = relay.parse(SIZES)
    for n in (1, 3):
        for i in range(4):
            x = np.arange(2 * n, dtype="float32").reshape(n, 2) - 2
            for c in (True, False):
                have = everywhere(mod, x, np.int32(i), np.bool_(c))[0]
                want = np.zeros(2, "float32")
                for j in range(i):
                    part = np.tile(x, (2**j, 1))
                    want = (np.maximum(part, 0).sum(0) if c else part.max(0) + x.min(0)) + 2 * want
                np.testing.assert_array_equal(have, want)


def test_exported_file_runs_alone(tmp_path):
    lib = relay.build(relay.parse(SIZES))
    path = lib.export_library(str(tmp_path / "model.so"))
    g = graph_executor.GraphModule(lathe.runtime.load_module(path)["default"](lathe.cpu()))
    x = np.array([[1, -2], [3, 4]], "float32")
    g.set_input("x", x)
    g.set_input("i", np.int32(2))
    g.set_input("c", np.bool_(True))
    g.run()
    np.testing.assert_array_equal(g.get_output(0).numpy(), 2 * np.maximum(x, 0).sum(0) + 2 * np.maximum(x, 0).sum(0))
    kernels = lib.get_source("ll" if lathe.runtime.enabled("llvm") else "c")
    assert "fused_nn_relu_sum" in kernels  # operators inside function values share kernels like any others


def test_no_clause_fits():
    mod = relay.parse(
        "type O { S(float32), N }\ndef @main(%x: float32, %c: bool) { match (if (%c) { S(%x) } else { N() }) { S(%y) => %y } }"
    )
    assert everywhere(mod, np.float32(2), np.bool_(True))[0] == 2
    for kind in ("debug", "vm"):
        with pytest.raises(lathe.error.LatheError, match="match: no clause fits the value"):
            relay.create_executor(kind, mod).evaluate()(np.float32(2), np.bool_(False))


def test_long_lists():
    """150,000 cells: made, walked and freed in loops."""
    mod = relay.parse("""
type List[A] { Cons(A, List[A]), Nil }
def @build(%i: float32, %l: List[float32]) -> List[float32] { if (greater(%i, 0f)) { @build(subtract(%i, 1f), Cons(%i, %l)) } else { %l } }
def @last(%l: List[float32], %x: float32) -> float32 { match (%l) { Cons(%h, %t) => @last(%t, %h), Nil => %x } }
def @main(%n: float32) { @last(@build(%n, Nil()), 0f) }
""")
    assert arrays(relay.create_executor("vm", mod).evaluate()(np.float32(150000)))[0] == 150000


@pytest.mark.parametrize(
    "text, says",
    [
        (
            "def @main(%f: fn (float32) -> float32) { %f(1f) }",
            "'f' of type fn .float32. -> float32 cannot be an input or output",
        ),
        (
            "def @main(%x: float32) { fn (%y: float32) { add(%x, %y) } }",
            "cannot be an input or output of a compiled model",
        ),
    ],
)
def test_not_across_the_border(text, says):
    with pytest.raises(lathe.error.UnsupportedError, match=says):
        relay.build(relay.parse(text))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    mod = relay.parse(Program(seed).text())
    everywhere(mod, np.array([1, -2, 3], "float32"), np.float32(2))
