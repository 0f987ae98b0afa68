"""Inputs and outputs in the caller's memory."""

import gc

import numpy as np
import pytest

import lathe
from lathe import error, relay
from lathe.contrib import graph_executor


def module(text, level=3, **feeds):
    with lathe.transform.PassContext(opt_level=level):
        lib = relay.build(relay.parse(text))
    return graph_executor.GraphModule(lib["default"](lathe.cpu(0)))


NET = "def @main(%x: Tensor[(3, 4), float32], %y: Tensor[(4), float32]) { nn.relu(add(%x, %y)) }"
OPEN = "def @main(%x: Tensor[(n, 4), float32], %y: Tensor[(4), float32]) { nn.relu(add(%x, %y)) }"


@pytest.mark.parametrize("text", [NET, OPEN], ids=["static", "open"])
@pytest.mark.parametrize("where", ["numpy", "nd", "dlpack"])
def test_a_change_of_the_array_is_seen(text, where):
    m = module(text)
    x = np.ones((3, 4), "float32")
    bound = {"numpy": x, "nd": lathe.nd.array(x), "dlpack": lathe.nd.from_dlpack(x)}[where]
    memory = np.asarray(bound) if where == "nd" else x
    m.set_input_zero_copy("x", bound)
    m.set_input("y", np.full(4, 2, "float32"))
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), np.full((3, 4), 3))
    memory[1] = -5
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy()[:, 0], [3, 0, 3])
    assert m.get_input("x").numpy()[1, 0] == -5
    m.set_input("x", memory)  # a copy again
    memory[...] = 7
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy()[:, 0], [3, 0, 3])


def test_the_array_is_kept_alive():
    m = module(NET)
    m.set_input_zero_copy("x", np.full((3, 4), 5, "float32"))
    m.set_input_zero_copy(y=np.full(4, 1, "float32"))
    out = np.empty((3, 4), "float32")
    m.set_output_zero_copy(0, out)
    gc.collect()
    junk = [np.full((3, 4), 9, "float32") for _ in range(100)]
    m.run()
    assert (out == 6).all() and len(junk) == 100


@pytest.mark.parametrize("text", [NET, OPEN], ids=["static", "open"])
def test_outputs_land_in_the_array(text):
    m = module(text)
    m.set_input("x", np.ones((3, 4), "float32"))
    m.set_input("y", np.arange(4, dtype="float32"))
    out = np.full((3, 4), -1, "float32")
    m["set_output_zero_copy"](0, out)
    m.run()
    np.testing.assert_array_equal(out, np.arange(4) + np.ones((3, 1)))
    np.testing.assert_array_equal(m.get_output(0).numpy(), out)
    m.set_input("y", np.full(4, 5, "float32"))
    m.run()
    assert (out == 6).all()
    m.set_output_zero_copy(0, None)
    m.set_input("y", np.full(4, 8, "float32"))
    m.run()
    assert (out == 6).all() and (m.get_output(0).numpy() == 9).all()


@pytest.mark.parametrize(
    "text",
    [
        "def @main(%x: Tensor[(2, 3), float32]) { (%x, nn.relu(%x)) }",  # an input
        "def @main(%x: Tensor[(2, 3), float32]) { %0 = nn.softmax(%x); (%0, %0) }",  # one tensor twice
        # and under another shape
        "def @main(%x: Tensor[(2, 3), float32]) { %0 = nn.softmax(%x); (%0, reshape(%0, newshape=[6])) }",
        "def @main(%x: Tensor[(2, 3), float32]) { %0 = nn.softmax(%x); %1 = nn.softmax(%0); (%0, %1, concatenate((%0, %1), axis=0)) }",
        "def @main(%x: Tensor[(2, 3), float32]) { %0 = nn.softmax(%x); (concatenate((%0, nn.softmax(%0)), axis=0), sum(%0)) }",
        "def @main(%x: Tensor[(4, 3), float32]) { %0 = split(nn.softmax(%x), indices_or_sections=2, axis=0); (%0.0, %0.1) }",
        "def @main(%x: Tensor[(2, 3), float32]) { (nn.softmax(%x), 3f) }",  # a constant
    ],
)
@pytest.mark.parametrize("level", [0, 3])
def test_outputs_that_share_memory(text, level):
    """Each output lands in its own array, whatever the plan did with their storage."""
    m = module(text, level)
    rng = np.random.default_rng(1)
    shape = m._executor.inputs[0].shape
    x = rng.normal(size=shape).astype("float32")
    m.set_input(0, x)
    m.run()
    want = [m.get_output(i).numpy() for i in range(m.get_num_outputs())]
    for bound in [[i] for i in range(len(want))] + [list(range(len(want)))]:
        arrays = {i: np.full(want[i].shape, -7, want[i].dtype) for i in bound}
        for i, a in arrays.items():
            m.set_output_zero_copy(i, a)
        for _ in range(2):
            m.set_input(0, x)
            m.run()
            for i, w in enumerate(want):
                np.testing.assert_array_equal(m.get_output(i).numpy(), w)
                if i in arrays:
                    np.testing.assert_array_equal(arrays[i], w)
        for i in bound:
            m.set_output_zero_copy(i, None)


def test_refusals():
    m = module(NET)
    x = np.zeros((3, 4), "float32")
    for value, says in [
        (x.astype("float64"), "float64"),
        (np.zeros((4, 3), "float32"), r"\(4, 3\)"),
        (np.zeros((4, 3), "float32").T, "compact"),
        (np.zeros((3, 8), "float32")[:, ::2], "compact"),
        (np.frombuffer(bytes(50), "uint8")[1:49].view("float32").reshape(3, 4), "aligned"),
        ([[1.0] * 4] * 3, "list"),
    ]:
        with pytest.raises(error.LatheError, match=says):
            m.set_input_zero_copy("x", value)
    with pytest.raises(error.ArgumentError, match="no input 'z'"):
        m.set_input_zero_copy("z", x)
    for value, says in [
        (x.astype("int32"), "int32"),
        (np.zeros((3, 5), "float32"), r"\(3, 5\)"),
        (np.zeros((4, 3), "float32").T, "compact"),
        (np.frombuffer(bytes(48), "float32").reshape(3, 4), "read-only"),
    ]:
        with pytest.raises(error.LatheError, match=says):
            m.set_output_zero_copy(0, value)
    with pytest.raises(error.ArgumentError, match="no output 3"):
        m.set_output_zero_copy(3, x)
    m.set_input_zero_copy("x", x)
    with pytest.raises(error.ArgumentError, match="would overwrite 'x'"):
        m.set_output_zero_copy(0, x)
    out = np.zeros((3, 4), "float32")
    m.set_output_zero_copy(0, out)
    with pytest.raises(error.ArgumentError, match="output 'output_0' is written to|memory that output"):
        m.set_input_zero_copy("x", out)
    m.set_input("y", np.ones(4, "float32"))
    m.run()
    assert (out == 1).all()


def test_an_open_size_that_does_not_fit():
    m = module(OPEN)
    m.set_input("x", np.zeros((5, 4), "float32"))
    m.set_input("y", np.zeros(4, "float32"))
    m.set_output_zero_copy(0, np.zeros((3, 4), "float32"))
    with pytest.raises(error.ArgumentError, match=r"\(5, 4\).*\(3, 4\)"):
        m.run()


# ---- parameters as bytes


def test_parameters_as_bytes():
    text = "def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) { nn.dense(%x, %w) }"
    w, x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32"), np.ones((2, 4), "float32")
    params = {
        "w": lathe.nd.array(w),
        "half": np.arange(6, dtype="float16").reshape(2, 3),
        "flag": np.array([True, False]),
        "n": np.array(7),
    }
    data = relay.save_param_dict(params)
    back = lathe.runtime.load_param_dict(data)
    assert list(back) == list(params) and [back[k].dtype for k in back] == ["float32", "float16", "bool", "int64"]
    for k, v in params.items():
        np.testing.assert_array_equal(back[k].numpy(), np.asarray(v))
    m, other = module(text), module(text)
    m.load_params(relay.save_param_dict({"w": w}))
    m.run(x=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), x @ w.T, rtol=1e-5)
    other.share_params(m, relay.save_param_dict({"w": w}))
    other.run(x=x)
    np.testing.assert_array_equal(other.get_output(0).numpy(), m.get_output(0).numpy())
    lib = relay.build(relay.parse(text), params={"w": w})
    with pytest.raises(error.ArgumentError, match="'w' is not an input"):
        graph_executor.GraphModule(lib["default"]()).load_params(relay.save_param_dict({"w": w}))


def test_parameters_as_tvm_writes_them():
    """One array, byte by byte as TVM's format says."""
    data = bytes.fromhex(
        "b79c04054f8de5f7"
        "0000000000000000"
        "0100000000000000"
        "0100000000000000"
        "62"
        "0100000000000000"
        "3fa1b496f0405edd"
        "0000000000000000"
        "01000000"
        "00000000"
        "01000000"
        "02"
        "20"
        "0100"
        "0200000000000000"
        "0800000000000000"
        "0000803f"
        "000000c0"
    )
    assert lathe.runtime.load_param_dict(data)["b"].numpy().tolist() == [1, -2]
    assert relay.save_param_dict({"b": np.array([1, -2], "float32")}) == data


def test_broken_parameters_are_refused():
    data = relay.save_param_dict({"w": np.zeros((2, 3), "float32")})
    for n in range(len(data)):
        with pytest.raises(error.ParseError):
            lathe.runtime.load_param_dict(data[:n])
    for at in (0, 16, 24, 33, 41, 65, 69, 70, 71, 73, 81, 89):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        with pytest.raises(error.LatheError):
            lathe.runtime.load_param_dict(bytes(broken))


def test_other_floats_of_numpy_are_converted():
    m = module(NET)
    m.set_input("x", np.full((3, 4), 0.5))
    m.set_input("y", np.arange(4, dtype="float16"))
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy()[0], [0.5, 1.5, 2.5, 3.5])
    with pytest.raises(error.ArgumentError, match="int64, wants float32"):
        m.set_input("y", np.arange(4))
    whole = module("def @main(%i: Tensor[(2), int32]) { add(%i, %i) }")
    with pytest.raises(error.ArgumentError, match="float32, wants int32"):
        whole.set_input("i", np.zeros(2, "float32"))


def laid_out(x):
    """The same numbers in every way that an array can hold them."""
    wide = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
    wide[:, ::2] = x
    still = x.copy()
    still.setflags(write=False)
    return {
        "plain": x.copy(),
        "read-only": still,
        "columns": np.asfortranarray(x),
        "strided": wide[:, ::2],
        "other bytes": x.astype(x.dtype.newbyteorder()),
        "NDArray": lathe.nd.array(x),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (600, 700)])
def test_copies_in_and_out(rng, dtype, shape):
    """Whatever way a copy takes, short or long: the numbers arrive, and what was taken out stays as it was."""
    x = relay.var("x", shape=shape, dtype=dtype)
    m = graph_executor.GraphModule(
        relay.build(lathe.IRModule.from_expr(relay.Function([x], relay.reverse(x, axis=1))), target="llvm")["default"](
            lathe.cpu(0)
        )
    )
    kept = []
    for way, seed in (
        ("plain", 0),
        ("read-only", 1),
        ("columns", 2),
        ("strided", 3),
        ("other bytes", 4),
        ("NDArray", 5),
        ("plain", 6),
    ):
        data = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
        m.set_input("x", laid_out(data)[way])
        m.run()
        y = m.get_output(0)
        assert y.numpy().flags.writeable and np.asarray(y).ctypes.data % 64 == 0
        kept.append((way, y, data[:, ::-1]))
    for way, y, wanted in kept:
        np.testing.assert_array_equal(y.numpy(), wanted, err_msg=way)
    for wrong in (np.zeros(shape[::-1] if shape[0] != shape[1] else (2, 2), dtype), np.zeros((*shape, 1), dtype)):
        with pytest.raises(lathe.error.LatheError, match="shape"):
            m.set_input("x", wrong)


def test_a_single_number():
    m = module("def @main(%x: Tensor[(), float32]) { add(%x, %x) }")
    for x in (np.array(3, "float32"), np.float32(3), 3.0):
        m.set_input("x", x)
        m.run()
        assert m.get_output(0).numpy() == 6 and m.get_output(0).shape == ()


def test_other_order_of_bytes():
    """Copied where there is a copy; where memory would be used as it is, refused."""
    x = np.arange(4, dtype=np.dtype("int32").newbyteorder())
    np.testing.assert_array_equal(lathe.nd.array(x).numpy(), np.arange(4))
    m = module("def @main(%x: Tensor[(4), int32]) { add(%x, %x) }")
    with pytest.raises(error.TypeError, match="order of bytes"):
        m.set_input_zero_copy("x", x)
    A = lathe.te.placeholder((4,), "int32", name="A")
    double = lathe.te.compute((4,), lambda i: A[i] + A[i])
    f = lathe.build(lathe.te.create_schedule(double.op), [A, double])
    with pytest.raises(error.TypeError, match="order of bytes"):
        f(x, lathe.nd.empty((4,), "int32"))
