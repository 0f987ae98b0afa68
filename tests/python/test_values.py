"""What Python objects say of themselves: identity of symbolic sizes, structural equality, classes, pickling, DLPack."""
import ctypes
import gc
import pickle

import numpy as np
import pytest

import lathe
from lathe import relay, te, tir
from lathe._ffi.library import RtDevice, RtDType, RtTensor
from lathe.contrib import graph_executor
from lathe.ir import assert_structural_equal, structural_equal

# ---- identity


def test_symbolic_sizes_stay_themselves_through_passes():
    n = te.var("n")
    t = relay.TensorType((n, 3))
    x = relay.var("x", t)
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    got = mod["main"].body.checked_type
    assert got == t and got.shape[0].same_as(n)
    other = relay.transform.FuseOps()(relay.transform.FoldConstant()(mod))["main"].params[0].type_annotation
    assert other == t
    assert got != relay.TensorType((te.var("n"), 3))


def test_free_variables_of_graphs():
    a, b = relay.var("a"), relay.var("b")
    assert structural_equal(a - b, a - b)
    assert not structural_equal(a - b, b - a)
    assert structural_equal(a - b, b - a, map_free_vars=True)
    assert not structural_equal(a - a, a - b, map_free_vars=True)
    with pytest.raises(ValueError, match="free variables %a and %b are not the same"):
        assert_structural_equal(a - b, b - a)


def test_bound_variables_may_be_renamed():
    c, d = relay.var("c", shape=(2,)), relay.var("d", shape=(2,))
    assert structural_equal(relay.Function([c], c + c), relay.Function([d], d + d))
    assert not structural_equal(relay.Function([c], c + d), relay.Function([d], d + c))
    assert structural_equal(relay.Function([c], c + d), relay.Function([d], d + c), map_free_vars=True)


def test_free_variables_are_the_same_after_their_types_were_inferred():
    x = relay.var("x", shape=(2,))
    y = relay.nn.relu(x)
    mod = lathe.IRModule.from_expr(relay.Function([], y))
    assert structural_equal(mod["main"].body, y)


def test_free_variables_of_expressions():
    p, q = tir.Var("p", "int32"), tir.Var("q", "int32")
    assert structural_equal(p - q, p - q)
    assert not structural_equal(p - q, q - p)
    assert structural_equal(p - q, q - p, map_free_vars=True)
    assert not structural_equal(p - p, p - q, map_free_vars=True)
    assert structural_equal(tir.Let(p, 1, p + 1), tir.Let(q, 1, q + 1))
    assert structural_equal([p, 1], [p, 1]) and not structural_equal([p, 1], [q, 1])


# ---- classes


def test_constructors_keep_what_is_written():
    e = tir.EQ(1, 2)
    assert isinstance(e, tir.EQ) and (e.a.value, e.b.value) == (1, 2)
    assert isinstance(tir.const(1) + 2, tir.IntImm)  # operators on literals give literals


def test_the_class_is_what_the_expression_is():
    x = tir.Var("x", "int32")
    same = tir.Cast("int32", x - x)
    assert isinstance(same, tir.Sub) and same.a.same_as(x)
    assert isinstance(tir.Cast("int64", x).value, tir.Var)
    assert isinstance(tir.IntImm("float32", 2), tir.FloatImm)


def test_a_module_of_types_alone_shows_them():
    List, a = relay.GlobalTypeVar("List"), relay.TypeVar("a")
    nil, cons = relay.Constructor("Nil", [], List), relay.Constructor("Cons", [a, List(a)], List)
    mod = lathe.IRModule()
    mod[List] = relay.TypeData(List, [a], [nil, cons])
    assert "type List[a] {" in str(mod) and "Cons(a, List[a])" in mod.astext()
    assert [c.name_hint for c in relay.fromtext(mod.astext()).get_type("List")[1:]] == ["Nil", "Cons"]


def test_what_cannot_be_run_through_says_so():
    x = relay.var("x", shape=(2,))
    for thing in (x, tir.decl_buffer((4,)), te.placeholder((4,))[0]):
        with pytest.raises(TypeError):
            list(thing)
    pair = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], relay.Tuple([x, x + x]))))["main"]
    assert len(list(relay.transform.InferType()(lathe.IRModule.from_expr(pair))["main"].body)) == 2


# ---- libraries


@pytest.fixture(scope="module")
def library():
    x = relay.var("x", shape=(2, 3))
    return relay.build(relay.Function([x], relay.Tuple([relay.nn.relu(x), x + x])), "c")


def outputs(lib):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.set_input("x", np.arange(6, dtype="float32").reshape(2, 3) - 2)
    m.run()
    return m


def test_outputs_by_name(library):
    m = outputs(library)
    np.testing.assert_array_equal(m.get_output("output_1").numpy(), 2 * m.get_input("x").numpy())
    np.testing.assert_array_equal(m["get_output"]("output_0").numpy(), m.get_output(0).numpy())
    with pytest.raises(ValueError, match="no output 'nope'; it has output_0, output_1"):
        m.get_output("nope")
    with pytest.raises(ValueError, match="there is no output 2"):
        m.get_output(2)
    with pytest.raises(TypeError, match="by its name or number, not by a float"):
        m.get_output(0.0)


def test_models_can_be_pickled(library, tmp_path):
    want = outputs(library).get_output(0).numpy()
    once = pickle.loads(pickle.dumps(library))
    twice = pickle.loads(pickle.dumps(once))
    library.export_library(tmp_path / "model.so")
    loaded = pickle.loads(pickle.dumps(lathe.runtime.load_module(tmp_path / "model.so")))
    for lib in (once, twice, loaded):
        np.testing.assert_array_equal(outputs(lib).get_output(0).numpy(), want)
    from_file = lathe.runtime.load_module(tmp_path / "model.so")
    (tmp_path / "model.so").unlink()
    with pytest.raises(lathe.LatheError, match="cannot be pickled without that file"):
        pickle.dumps(from_file)


def test_functions_can_be_pickled():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    f = pickle.loads(pickle.dumps(lathe.build(te.create_schedule(B.op), [A, B], "c", name="f")))
    out = lathe.nd.empty((4,))
    f["f"](np.arange(4, dtype="float32"), out)
    np.testing.assert_array_equal(out.numpy(), [1, 2, 3, 4])


def test_what_cannot_be_pickled_says_the_way_out():
    with pytest.raises(lathe.LatheError, match=r"store script\(\), and read it again with lathe.script.from_source"):
        pickle.dumps(te.create_prim_func([te.compute((4,), lambda i: i)]))
    with pytest.raises(lathe.LatheError, match="relay.fromtext"):
        pickle.dumps(relay.var("x"))


# ---- DLPack of dtypes that numpy lacks


class Managed(ctypes.Structure):
    _fields_ = [("tensor", RtTensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class Foreign:
    """An array of another library's, made by hand."""

    def __init__(self, raw, code, bits, strides=None):
        self.raw, self.given_back = raw, 0
        self.shape = (ctypes.c_int64 * raw.ndim)(*raw.shape)
        self.strides = (ctypes.c_int64 * raw.ndim)(*strides) if strides else None
        self.deleter = Managed._fields_[2][1](self._give_back)
        tensor = RtTensor(
            raw.ctypes.data, RtDevice(1, 0), raw.ndim, RtDType(code, bits, 1), self.shape, self.strides, 0
        )
        self.managed = Managed(tensor, None, self.deleter)

    def _give_back(self, address):
        assert address == ctypes.addressof(self.managed)
        self.given_back += 1

    def __dlpack__(self, **_kwargs):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


def bfloat16_bits(values):
    return (np.asarray(values, "float32").view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_by_dlpack():
    source = Foreign(bfloat16_bits([[1.0, -2.5, 3.0], [0.5, 4.0, -1.0]]), 4, 16)
    a = lathe.nd.from_dlpack(source)
    assert a.dtype == "bfloat16" and a.shape == (2, 3) and a.data_address == source.raw.ctypes.data
    x = relay.var("x", shape=(2, 3), dtype="bfloat16")
    got = relay.create_executor("graph", target="c").evaluate(relay.Function([x], relay.cast(x, "float32")))(a)
    np.testing.assert_array_equal(got.numpy(), [[1.0, -2.5, 3.0], [0.5, 4.0, -1.0]])
    assert source.given_back == 0
    del a
    gc.collect()
    assert source.given_back == 1


def test_capsules_and_strides():
    source = Foreign(bfloat16_bits(np.arange(6).reshape(2, 3)), 4, 16, strides=(1, 2))
    source.shape[0], source.shape[1] = 2, 3
    a = lathe.nd.from_dlpack(source.__dlpack__())
    np.testing.assert_array_equal(lathe.nd.array(a)._raw, bfloat16_bits([[0, 2, 4], [1, 3, 5]]))


def test_our_arrays_of_bfloat16_go_out_as_such():
    ours = lathe.nd.empty((3,), "bfloat16")
    ours._raw[...] = bfloat16_bits([1, 2, 3])
    again = lathe.nd.from_dlpack(ours)
    assert again.dtype == "bfloat16" and again.data_address == ours.data_address
    with pytest.raises(lathe.LatheError, match="int4 is stored one element a byte"):
        lathe.nd.empty((3,), "int4").to_dlpack()


def test_dlpack_of_what_nobody_has_is_refused():
    with pytest.raises(TypeError, match="complex64"):
        lathe.nd.from_dlpack(Foreign(np.zeros(2, np.uint64), 5, 64))
    with pytest.raises(ValueError, match="from_dlpack"):
        lathe.nd.from_dlpack(Foreign(np.zeros(2, np.uint64), 3, 64))  # addresses
    with pytest.raises(ValueError, match="from_dlpack"):
        lathe.nd.from_dlpack(3)
