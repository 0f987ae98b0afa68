"""Bad input gets one clear sentence, of the right class, and nothing is broken after."""

import builtins
import pickle

import numpy as np
import pytest

import lathe as tvm
from lathe import error, te, tir


def one_sentence(e):
    """The message is short, lower case, and on one line."""
    text = str(e.value)
    assert "\n" not in text and 10 < len(text) < 400, text
    return text


def add_one(n=8, dtype="float32"):
    A = te.placeholder((n,), name="A", dtype=dtype)
    B = te.compute((n,), lambda i: A[i] + tir.const(1, dtype), name="B")
    return A, B


def build_add_one(n=8):
    A, B = add_one(n)
    return tvm.build(te.create_schedule(B.op), [A, B], name="add_one")


# ---- classes


def test_errors_are_also_builtins():
    pairs = [
        (error.ArgumentError, ValueError),
        (error.TypeError, builtins.TypeError),
        (error.ShapeError, ValueError),
        (error.BoundsError, IndexError),
        (error.ParseError, SyntaxError),
        (error.ScheduleError, ValueError),
        (error.UnsupportedError, NotImplementedError),
        (error.IOError, OSError),
        (error.MemoryError, builtins.MemoryError),
    ]
    for ours, theirs in pairs:
        assert issubclass(ours, theirs) and issubclass(ours, tvm.LatheError) and issubclass(ours, tvm.TVMError)
        e = ours("a message", "file.py", 3, 4)
        assert str(e) == "file.py:3:4: a message" and e.message == "a message"
        assert str(pickle.loads(pickle.dumps(e))) == str(e)


# ---- targets


def test_unknown_target():
    with pytest.raises(ValueError) as e:
        tvm.target.Target("llwm -mcpu=native")
    assert "llwm" in one_sentence(e) and "llvm" in str(e.value)


def test_unknown_target_attribute():
    with pytest.raises(ValueError) as e:
        tvm.target.Target("llvm -mcup=native")
    assert "mcup" in one_sentence(e) and "mcpu" in str(e.value)


# ---- dtypes


def test_unknown_dtype():
    with pytest.raises(TypeError) as e:
        te.placeholder((4,), dtype="float33x")
    assert "float33x" in one_sentence(e)


def test_dtype_mismatch_in_an_expression():
    A = te.placeholder((4,), name="A", dtype="float16")
    B = te.placeholder((4,), name="B", dtype="bfloat16")
    with pytest.raises(TypeError) as e:
        te.compute((4,), lambda i: A[i] + B[i])
    assert "float16" in one_sentence(e) and "bfloat16" in str(e.value)


def test_dtype_mismatch_at_call_time():
    with pytest.raises(ValueError) as e:
        build_add_one()(np.zeros(8, "float64"), np.zeros(8, "float32"))
    text = one_sentence(e)
    assert "float64" in text and "float32" in text and "add_one" in text and "'A'" in text


# ---- ranks and shapes


def test_rank_mismatch_in_an_expression():
    A = te.placeholder((4, 4), name="A")
    with pytest.raises(ValueError) as e:
        te.compute((4,), lambda i: A[i])
    text = one_sentence(e)
    assert "'A'" in text and "2 dimensions" in text and "1 ind" in text


def test_wrong_number_of_indices_in_the_lambda():
    A = te.placeholder((4, 4), name="A")
    with pytest.raises(ValueError) as e:
        te.compute((4, 4), lambda i: A[i, i])
    assert "1 indices" in one_sentence(e)


def test_rank_mismatch_at_call_time():
    with pytest.raises(ValueError) as e:
        build_add_one()(np.zeros((8, 1), "float32"), np.zeros(8, "float32"))
    assert "rank 2" in one_sentence(e) and "'A'" in str(e.value)


def test_wrong_shape_at_call_time():
    with pytest.raises(ValueError) as e:
        build_add_one()(np.zeros(9, "float32"), np.zeros(8, "float32"))
    text = one_sentence(e)
    assert "9" in text and "8" in text and "'A'" in text


def test_wrong_number_of_arguments():
    with pytest.raises(ValueError) as e:
        build_add_one()(np.zeros(8, "float32"))
    assert "2 arguments" in one_sentence(e)


def test_read_only_output():
    out = np.zeros(8, "float32")
    out.flags.writeable = False
    with pytest.raises(ValueError) as e:
        build_add_one()(np.zeros(8, "float32"), out)
    assert "read-only" in one_sentence(e)


def test_the_function_still_works_after_refusals():
    func = build_add_one()
    for bad in ([np.zeros(8, "int8")] * 2, [np.zeros(3, "float32")] * 2, [1, 2], [None, None]):
        with pytest.raises(ValueError):
            func(*bad)
    out = np.zeros(8, "float32")
    func(np.arange(8, dtype="float32"), out)
    np.testing.assert_array_equal(out, np.arange(8) + 1)


# ---- bounds


def test_read_out_of_bounds_is_found_at_compile_time():
    A = te.placeholder((8,), name="A")
    with pytest.raises(IndexError) as e:
        B = te.compute((8,), lambda i: A[i + 8], name="B")
        tvm.build(te.create_schedule(B.op), [A, B])
    assert "'A'" in one_sentence(e)


# ---- recursion


def test_compute_that_reads_itself():
    A = te.placeholder((8,), name="A")
    with pytest.raises(ValueError) as e:
        C = te.compute((8,), lambda i: C[i - 1] + A[i])  # noqa: F821
    text = one_sentence(e)
    assert "'C'" in text and "cannot read itself" in text and "te.scan" in text


def test_other_name_errors_stay_themselves():
    with pytest.raises(NameError) as e:
        te.compute((8,), lambda i: undefined_tensor[i])  # noqa: F821
    assert "undefined_tensor" in str(e.value) and not isinstance(e.value, tvm.LatheError)


def test_exception_in_the_lambda_comes_out_as_itself():
    class Mine(Exception):
        pass

    def body(i):
        raise Mine("mine")

    with pytest.raises(Mine):
        te.compute((8,), body)


# ---- text


def test_text_that_does_not_parse():
    with pytest.raises(SyntaxError) as e:
        tvm.script.from_source(
            "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    for i in T.serial(4:\n        A[i] = 0.0\n"
        )
    assert isinstance(e.value, error.ParseError)
    assert e.value.line == 3 and e.value.col > 0 and f":3:{e.value.col}:" in one_sentence(e)


# ---- expressions


def test_truth_of_an_expression():
    i = te.var("i")
    with pytest.raises(ValueError) as e:
        _ = 1 if i > 3 else 2
    assert "tir.all" in one_sentence(e)


def test_integer_division_is_ambiguous():
    i = te.var("i")
    with pytest.raises(TypeError) as e:
        _ = i / 2
    assert "//" in one_sentence(e) and "truncdiv" in str(e.value)
    assert (i.astype("float32") / 2).dtype == "float32"


def test_reduction_over_a_plain_axis():
    A = te.placeholder((8,), name="A")
    with pytest.raises(TypeError) as e:
        te.compute((8,), lambda i: te.sum(A[i], axis=i))
    assert "reduce_axis" in one_sentence(e)


def test_tensor_as_an_element():
    A = te.placeholder((8,), name="A")
    with pytest.raises(TypeError) as e:
        te.compute((8,), lambda i: A)
    assert "element" in one_sentence(e)
    with pytest.raises(TypeError) as e:
        te.compute((8,), lambda i: None)
    assert "None" in one_sentence(e)


def test_bad_shapes():
    for bad in ("x", 2.5, [None], (3, "n")):
        with pytest.raises(TypeError) as e:
            te.placeholder(bad, name="A")
        one_sentence(e)


# ---- schedules


def test_build_without_arguments():
    A, B = add_one()
    with pytest.raises(ValueError) as e:
        tvm.build(te.create_schedule(B.op))
    assert "args must be given" in one_sentence(e)


def test_wrong_things_for_build():
    with pytest.raises(TypeError) as e:
        tvm.build(3)
    assert "int" in one_sentence(e)
    A, B = add_one()
    with pytest.raises(TypeError) as e:
        tvm.build(te.create_schedule(B.op), [A, "B"])
    assert "str" in one_sentence(e)


def test_devices_that_are_not_there():
    with pytest.raises(NotImplementedError) as e:
        tvm.nd.array(np.zeros(3), tvm.cuda(0))
    assert "cuda(0)" in one_sentence(e)
    with pytest.raises(ValueError):
        tvm.device("quantum")


def test_unknown_function_of_a_module():
    with pytest.raises(LookupError) as e:
        build_add_one()["nothing"]
    assert "'nothing'" in one_sentence(e) and "add_one" in str(e.value)


def test_unknown_config_key():
    A, B = add_one()
    with pytest.raises(ValueError) as e:
        tvm.build(te.create_schedule(B.op), [A, B], config={"unroll_mxa": 3})
    assert "unroll_mxa" in one_sentence(e) and "unroll_max" in str(e.value)


def test_expressions_that_are_too_deep_are_refused():
    x = te.var("x")

    def grown(levels):
        e = x
        for _ in range(levels // 2):
            e = e * x + 1
        return e

    deep = grown(9000)
    assert str(deep) and tvm.ir.structural_equal(deep, deep)
    assert tvm.arith.Analyzer().const_int_bound(deep).min_value < 0
    with pytest.raises(error.UnsupportedError, match="more than 10000 levels"):
        grown(20000)
