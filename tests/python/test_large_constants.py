"""Constants inside kernels: the small ones are written into the code, the others become parameters of the kernel."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402

SIZES = [1, 2, 63, 64, 65, 91, 255, 256, 257, 1000]


def run(lib, **inputs):
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    model.run(**inputs)
    return [model.get_output(i).numpy() for i in range(model.get_num_outputs())]


def table_model(tables, dtype):
    """Positions where x is positive, taken from each table; what comes out is added up and put behind itself."""
    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Squeeze", ["at"], ["i"])]
    weights = [numpy_helper.from_array(np.array([0], np.int64), "axis")]
    nodes[1].input.append("axis")
    total = None
    for k, table in enumerate(tables):
        weights.append(numpy_helper.from_array(table, f"table{k}"))
        nodes.append(helper.make_node("Gather", [f"table{k}", "i"], [f"row{k}"], axis=0))
        if total:
            nodes.append(helper.make_node("Add", [total, f"row{k}"], [f"sum{k}"]))
        total = f"sum{k}" if total else f"row{k}"
    nodes.append(helper.make_node("Concat", [total, total], ["y"], axis=0))
    graph = helper.make_graph(
        nodes, "tables", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [None])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
@pytest.mark.parametrize("size", SIZES)
def test_tables_of_a_model_whose_sizes_are_known_at_run_time(size, dtype):
    rng = np.random.default_rng(size)
    tables = [rng.integers(-1000, 1000, size).astype(dtype) for _ in range(3)]
    tables[1][:] = 7  # one value all over: written into the code whatever its size
    model = table_model(tables, dtype)
    x = rng.standard_normal(size).astype("float32")
    x[0] = 1
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    mod, params = relay.frontend.from_onnx(model)
    got = run(relay.build(mod, target="llvm", params=params), x=x)[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(n,) for n in SIZES] + [(8, 8), (5, 13), (3, 1, 91), (0, 91)])
def test_linked_parameters(shape):
    rng = np.random.default_rng(3)
    a, b, x = (rng.standard_normal(shape).astype("float32") for _ in range(3))
    v = relay.var("x", shape=shape)
    body = relay.multiply(relay.add(v, relay.const(a)), relay.const(b))
    body = relay.Tuple([relay.nn.relu(body), relay.add(body, relay.const(a))])
    mod = lathe.IRModule.from_expr(relay.Function([v], body))
    with lathe.transform.PassContext(opt_level=3, config={"relay.FuseOps.link_params": True}):
        lib = relay.build(mod, target="llvm")
    first, second = run(lib, x=x)
    np.testing.assert_allclose(first, np.maximum((x + a) * b, 0), rtol=1e-6)
    np.testing.assert_allclose(second, (x + a) * b + a, rtol=1e-5, atol=1e-6)


def test_a_primitive_function_that_gives_its_constant():
    table = np.arange(91, dtype="float32")
    x = relay.var("x", shape=(91,))
    inner = relay.var("p", shape=(91,))
    func = relay.Function([inner], relay.Tuple([relay.const(table), relay.exp(inner)])).with_attr("Primitive", 1)
    mod = lathe.IRModule.from_expr(relay.Function([x], relay.Call(func, [x])))
    same, exp = run(relay.build(mod, target="llvm"), x=np.ones(91, "float32"))
    np.testing.assert_array_equal(same, table)
    np.testing.assert_allclose(exp, np.full(91, np.e, "float32"), rtol=1e-6)


@pytest.mark.parametrize("size", [64, 65])
def test_operators_that_are_loop_programs(size):
    """scatter_elements and argsort take every operand as a parameter, also what is computed or constant beside them."""
    rng = np.random.default_rng(5)
    index, update = rng.permutation(size).astype("int32"), rng.standard_normal(size).astype("float32")
    x, p = relay.var("x", shape=(size,)), relay.var("p", shape=(size,))
    scatter = relay.scatter_elements(p, relay.const(index), relay.const(update), axis=0, reduction="add")
    func = relay.Function([p], relay.argsort(relay.add(scatter, relay.const(update)), dtype="int32"))
    mod = lathe.IRModule.from_expr(relay.Function([x], relay.Call(func.with_attr("Primitive", 1), [x])))
    data = rng.standard_normal(size).astype("float32")
    got = run(relay.build(mod, target="llvm"), x=data)[0]
    want = data.copy()
    want[index] += update
    np.testing.assert_array_equal(got, np.argsort(want + update, kind="stable"))


def test_strings_beside_numbers():
    words = np.array(["one", "two", "three"], dtype=object)
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Gather", ["words", "at"], ["y"], axis=0)],
        "words", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1, None])],
        [helper.make_tensor("words", TensorProto.STRING, [3], [w.encode() for w in words])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mod, params = relay.frontend.from_onnx(model)
    got = run(relay.build(mod, target="llvm", params=params), x=np.array([0, 1, 1], "float32"))[0]
    assert got.tolist() == [["two", "three"]]
