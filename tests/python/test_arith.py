"""lathe.arith: what is said of expressions holds for every value that their variables can take."""

import itertools
import operator
import random

import pytest

import lathe
from lathe import arith, error, te, tir
from lathe.ir import Range, structural_equal


BINARY = {tir.Add: operator.add, tir.Sub: operator.sub, tir.Mul: operator.mul, tir.FloorDiv: operator.floordiv,
          tir.FloorMod: operator.mod, tir.Min: min, tir.Max: max}


def evaluate(e, values):
    """The integer that an expression is when its variables have these values."""
    if isinstance(e, tir.Var):
        return next(n for v, n in values.items() if v.same_as(e))
    if isinstance(e, (int, tir.IntImm)):
        return int(e)
    return BINARY[type(e)](evaluate(e.a, values), evaluate(e.b, values))


def random_expr(rng, variables, depth):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(variables) if rng.random() < 0.7 else tir.const(rng.randint(-6, 6), "int32")
    a, b = random_expr(rng, variables, depth - 1), random_expr(rng, variables, depth - 1)
    kind = rng.choice(["add", "sub", "mul", "div", "mod", "min", "max"])
    c = rng.randint(1, 5)
    return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * c, "div": lambda: a // c,
            "mod": lambda: a % c, "min": lambda: tir.min(a, b), "max": lambda: tir.max(a, b)}[kind]()


@pytest.mark.parametrize("seed", range(12))
def test_bounds_sets_and_rests_hold_everywhere(seed):
    rng = random.Random(seed)
    x, y = te.var("x"), te.var("y")
    e = random_expr(rng, [x, y], 3)
    analyzer = arith.Analyzer()
    analyzer.bind(x, Range(-3, 5))
    analyzer.bind(y, Range(0, 4))
    bound, modular = analyzer.const_int_bound(e), analyzer.modular_set(e)
    interval = analyzer.int_set(e)
    for a, b in itertools.product(range(-3, 5), range(0, 4)):
        value = evaluate(e, {x: a, y: b})
        assert bound.min_value <= value <= bound.max_value
        assert value == modular.base if modular.coeff == 0 else (value - modular.base) % modular.coeff == 0
        assert evaluate(interval.min_value, {}) <= value <= evaluate(interval.max_value, {})


def test_conditions_hold_inside_their_scope():
    x, y = te.var("x"), te.var("y")
    analyzer = arith.Analyzer()
    assert not analyzer.can_prove(x > 2)
    with analyzer.constraint_scope(x > 3):
        assert analyzer.can_prove(x > 2)
        assert analyzer.simplify(tir.max(x, 2)).same_as(x)
        with analyzer.constraint_scope(y.equal(x)):
            assert analyzer.can_prove(y > 3)
        assert not analyzer.can_prove(y > 3)
    assert not analyzer.can_prove(x > 2)


def test_a_scope_ends_with_an_exception():
    x = te.var("x")
    analyzer = arith.Analyzer()
    with pytest.raises(KeyError), analyzer.constraint_scope(x > 3):
        raise KeyError("inside")
    assert not analyzer.can_prove(x > 2)


def test_update():
    x, y = te.var("x"), te.var("y")
    analyzer = arith.Analyzer()
    analyzer.update(x, arith.ConstIntBound(-3, 5))
    assert analyzer.const_int_bound(x * 2) == arith.ConstIntBound(-6, 10)
    with pytest.raises(error.ArgumentError, match="override"):
        analyzer.update(x, arith.ConstIntBound(0, 1))
    analyzer.update(x, arith.ConstIntBound(0, 1), override=True)
    assert analyzer.const_int_bound(x) == arith.ConstIntBound(0, 1)
    analyzer.update(y, arith.ModularSet(4, 1))
    assert analyzer.modular_set(y * 2) == arith.ModularSet(8, 2)
    analyzer.update(y, arith.ConstIntBound(7, arith.ConstIntBound.POS_INF))
    assert analyzer.can_prove(y >= 7)
    with pytest.raises(error.ArgumentError, match="not int"):
        analyzer.update(x, 3)


def test_no_bound_is_infinite():
    x = te.var("x", "int64")
    bound = arith.Analyzer().const_int_bound(x)
    assert (bound.min_value, bound.max_value) == (arith.ConstIntBound.NEG_INF, arith.ConstIntBound.POS_INF)


def test_bind():
    x, y = te.var("x"), te.var("y")
    analyzer = arith.Analyzer()
    analyzer.bind(y, x + 1)
    assert analyzer.can_prove_equal(y - x, 1)
    analyzer.bind(y, Range(0, 4))
    assert not analyzer.can_prove_equal(y - x, 1)
    assert analyzer.const_int_bound(y) == arith.ConstIntBound(0, 3)


def test_symbolic_sets():
    x, n = te.var("x"), te.var("n")
    found = arith.Analyzer().int_set(x * 2 + n, {x: arith.IntervalSet(0, 9)})
    assert structural_equal(found.min_value, n) and arith.Analyzer().can_prove_equal(found.max_value, n + 18)
    everything = arith.Analyzer().int_set(x, {x: arith.IntervalSet(arith.neg_inf(), arith.pos_inf())})
    assert everything.is_nothing() is False
    assert arith.IntervalSet(arith.neg_inf(), arith.pos_inf()).is_everything()
    assert arith.IntervalSet(arith.pos_inf(), arith.neg_inf()).is_nothing()
    lanes = arith.IntSet.vector(tir.Ramp(x, 2, 4))
    assert arith.Analyzer().can_prove_equal(lanes.max_value - lanes.min_value, 6)


def test_linear_equations():
    x, y, n = te.var("x"), te.var("y"), te.var("n")
    assert [int(c) for c in arith.detect_linear_equation(x * 3 + y * 4 + 7, [x, y])] == [3, 4, 7]
    a, rest = arith.detect_linear_equation(x * n + n + 1, [x])
    assert structural_equal(a, n) and arith.Analyzer().can_prove_equal(rest, n + 1)
    assert arith.detect_linear_equation(x * y, [x, y]) == []
    assert len(arith.detect_linear_equation(n + 1, [])) == 1


def test_clip_bounds():
    x, y = te.var("x"), te.var("y")
    low, high = arith.detect_clip_bound(tir.all(x < y * 6, x - 1 > 0), [x])
    assert int(low) == 2 and arith.Analyzer().can_prove_equal(high, y * 6 - 1)
    low, high = arith.detect_clip_bound(tir.all(x > 3, x > 5), [x])
    assert int(arith.Analyzer().simplify(low)) == 6 and high is None
    assert arith.detect_clip_bound(x * x < 4, [x]) == []


@pytest.mark.parametrize("text", ["x * 2 + y < 10", "10 < x * 2 + y", "3 - x * 3 >= y", "x + y >= 2", "x * 4 - y <= 7",
                                  "(x + y >= 2) & (x * 2 + y < 10)"])
def test_deduced_bounds_are_the_largest(text):
    x, y = te.var("x"), te.var("y")
    parts = [eval(p, {"x": x, "y": y}) for p in text.split(" & ")]
    cond = tir.all(*parts) if len(parts) > 1 else parts[0]
    domain = arith.IntervalSet(0, 3)
    found = arith.deduce_bound(x, cond, {y: domain}, {y: domain})
    holds = [n for n in range(-30, 30) if all(eval(text, {"x": n, "y": k}) for k in range(4))]
    if not found.min_value.same_as(arith.neg_inf()):
        assert evaluate(found.min_value, {}) == min(holds)
    else:
        assert min(holds) == -30
    if not found.max_value.same_as(arith.pos_inf()):
        assert evaluate(found.max_value, {}) == max(holds)
    else:
        assert max(holds) == 29


def test_iterator_maps():
    i, j = te.var("i"), te.var("j")
    loops = {i: Range(0, 8), j: Range(0, 4)}
    fused = i * 4 + j
    for indices in ([fused], [fused // 2, fused % 2], [j, i], [fused // 8, fused % 8]):
        result = arith.detect_iter_map(indices, loops, check_level=arith.IterMapLevel.Bijective)
        assert len(result.indices) == len(indices) and not result.errors
        back = [arith.normalize_iter_map_to_expr(s) for s in result.indices]
        reached = set()
        for a, b in itertools.product(range(8), range(4)):
            values = {i: a, j: b}
            point = tuple(evaluate(e, values) for e in indices)
            assert point == tuple(evaluate(e, values) for e in back)
            reached.add(point)
        assert len(reached) == 32
    refused = arith.detect_iter_map([i + j], loops)
    assert refused.indices == [] and "skips" in refused.errors[0]


def test_inverse_of_an_iterator_map():
    i, j, o = te.var("i"), te.var("j"), te.var("o")
    found = arith.detect_iter_map([i * 4 + j], {i: Range(0, 8), j: Range(0, 4)}, check_level="bijective")
    solved = arith.inverse_affine_iter_map(found.indices, [o])
    for n in range(32):
        assert (evaluate(solved[i], {o: n}), evaluate(solved[j], {o: n})) == divmod(n, 4)


def test_regions():
    i, j = te.var("i"), te.var("j")
    loops = {i: Range(0, 8), j: Range(0, 4)}
    upper, = arith.estimate_region_upper_bound([Range.from_min_extent(i * 4, 6)], loops)
    assert (evaluate(upper.min_value, {}), evaluate(upper.max_value, {})) == (0, 33)
    strict, = arith.estimate_region_strict_bound([Range.from_min_extent(i * 4 + j, 1)], loops)
    assert (evaluate(strict.min_value, {}), evaluate(strict.max_value, {})) == (0, 31)
    assert arith.estimate_region_lower_bound([Range.from_min_extent(i + j, 1)], loops) is None


def test_names_of_tvm():
    for name in ("Analyzer", "ConstIntBound", "ModularSet", "IntervalSet", "detect_linear_equation", "IterMapLevel"):
        assert hasattr(lathe.arith, name)


# ---- the forms that TVM's rewrite rules end in

FORMS = [
    ("x - 10", "x + -10"),
    ("max(x - 11, y) + 11", "max(x, y + 11)"),
    ("min(x, y - z) + z", "min(x + z, y)"),
    ("z + max(y - z, x)", "max(y, x + z)"),
    ("x * y + x * 10", "x * (y + 10)"),
    ("x - (y + x)", "0 - y"),
    ("max(x, y) - y", "max(x - y, 0)"),
    ("x - tdiv(x, 3) * 3", "tmod(x, 3)"),
    ("tdiv(y - z, 5) * 5 - y", "0 - tmod(y - z, 5) - z"),
    ("(x + 5) // 3 - x // 3", "(x % 3 + 5) // 3"),
    ("x // 2 + x % 2", "(x + 1) // 2"),
    ("min(x - y, x - z)", "x - max(y, z)"),
    ("max(x * -2, 4)", "min(x, -2) * -2"),
    ("min(max(x, y), max(z, x))", "max(min(y, z), x)"),
    ("x * 2 <= 3", "x <= 1"),
    ("x + 1 > 100", "lt(99, x)"),
    ("tdiv(x, 3) >= 0", "le(-2, x)"),
    ("(x + 2) // 4 * 4 >= x", "(x + 2) % 4 <= 2"),
    ("both(x // 8 == 3, x % 8 == 4)", "x == 28"),
    ("both(x < 20, x % 5 < 2)", "both(x < 17, x % 5 < 2)"),
]


@pytest.mark.parametrize("before, after", FORMS)
def test_rewrite_forms(before, after):
    names = {n: te.var(n) for n in "xyz"}
    names.update(max=te.max, min=te.min, tdiv=tir.truncdiv, tmod=tir.truncmod, both=tir.all, lt=tir.LT, le=tir.LE)
    given, wanted = (eval(t, {}, names) for t in (before, after))
    found = arith.Analyzer().rewrite_simplify(given)
    lathe.ir.assert_structural_equal(found, wanted.asobject() if hasattr(wanted, "asobject") else wanted)


def test_rewrite_knows_what_simplify_knows():
    x = te.var("x")
    analyzer = arith.Analyzer()
    analyzer.bind(x, lathe.ir.Range(0, 8))
    assert int(analyzer.rewrite_simplify(x // 8)) == 0
    with pytest.raises(lathe.error.LatheError, match="division by zero"):
        analyzer.rewrite_simplify(tir.truncdiv(x, 0))


def test_a_divisor_that_rewriting_makes_zero_is_no_mistake():
    x, y = te.var("x"), te.var("y")
    analyzer = arith.Analyzer()
    analyzer.bind(x, lathe.ir.Range(0, 1))
    guarded = tir.if_then_else(x > 0, y // x, y)
    assert analyzer.rewrite_simplify(guarded).same_as(y)


def test_vectors_of_the_machines_width():
    x, y = te.var("x"), te.var("y")
    lanes = tir.vscale() * 4
    both = arith.Analyzer().rewrite_simplify(tir.Ramp(x, 1, lanes) + tir.Ramp(y, 2, lanes))
    lathe.ir.assert_structural_equal(both, tir.Ramp(x + y, 3, lanes))
    assert str(both) == "T.Ramp(x + y, 3, T.vscale()*4)" and both.dtype == "int32xvscalex4"
    assert not lathe.ir.structural_equal(both, tir.Ramp(x + y, 3, 4))
    assert arith.Analyzer().can_prove(tir.vscale() * x >= x) is False
    assert arith.Analyzer().can_prove(tir.vscale() >= 1)
