"""Plans given by hand: each computes the same as ONNX Runtime, one that cannot be is refused with the reason, and the
command line lists them."""
import os
import pathlib
import random
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe
from lathe import relay
from lathe.contrib import graph_executor

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"

# data, weight, attributes: odd channels, groups, windows of every kind; and products (rows, inner, columns)
CONVOLUTIONS = [
    ((1, 22, 13, 17), (34, 11, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((2, 7, 9, 21), (13, 7, 2, 5), {"strides": [1, 2], "dilations": [2, 1], "pads": [0, 1, 2, 1]}),
    ((1, 32, 14, 14), (48, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
]
PRODUCTS = [(5, 37, 61), (33, 64, 130)]


def model_of(case):
    """A model of one node over a constant weight, and its input's shape."""
    rng = np.random.default_rng(3)
    if isinstance(case[0], tuple):
        data, weight, attributes = case
        node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    else:
        rows, inner, columns = case
        data, weight = (rows, inner), (inner, columns)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    w = rng.standard_normal(weight).astype("float32")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), data


def plans_of(path):
    """{workload: its plans} as 'lathe inspect --alternatives' lists them."""
    said = subprocess.run(
        [PROGRAM, "inspect", path, "--alternatives", "nn."], check=True, text=True, capture_output=True
    )
    found = {}
    for line in said.stdout.splitlines():
        if line.startswith("nn."):
            current = found.setdefault(line.split()[0], [])
        elif line[:2] in ("* ", "  "):
            current.append(line[2:].split(" ", 1)[1])
    return found


def answer(model, x, config):
    """The output and the implementations that were taken."""
    module, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3, config=config):
        library = relay.build(module, target="llvm", params=params)
    runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
    runner.set_input("x", x)
    runner.run()
    return runner.get_output(0).numpy(), [n.impl for n in library.model.nodes()]


@pytest.mark.parametrize("case", CONVOLUTIONS + PRODUCTS, ids=str)
def test_any_plan_computes_the_same(case, tmp_path):
    model, data = model_of(case)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = np.random.default_rng(5).standard_normal(data).astype("float32")
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    listed = plans_of(path)
    workload = max(listed, key=lambda w: len(listed[w]))
    assert len(listed[workload]) >= 8
    for plan in random.Random(11).sample(listed[workload], 4):
        got, taken = answer(model, x, {"lathe.plans": f"{workload} {plan}\n"})
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=plan)
        assert plan.split("{")[0] in taken, (plan, taken)


def attention_model(heads, length, size):
    """Attention over heads side by side, as projections leave them; q, k and v are thirds of the input."""
    rows = numpy_helper.from_array(np.array([0, 0, heads, size]), "rows")
    back = numpy_helper.from_array(np.array([0, 0, heads * size]), "back")
    scale = numpy_helper.from_array(np.array(size**-0.5, "float32"), "scale")
    nodes = [helper.make_node("Split", ["x"], ["q0", "k0", "v0"], axis=2)]
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name + "0", "rows"], [name + "1"]))
        nodes.append(helper.make_node("Transpose", [name + "1"], [name], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["s0"]),
        helper.make_node("Mul", ["s0", "scale"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
        helper.make_node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "back"], ["y"]),
    ]
    data = (1, length, 3 * heads * size)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, data)
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], [rows, back, scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), data


# fewer output channels than a vector's lanes leave whole; rows that are no whole vectors
KINDS = {
    "few channels": (
        lambda: model_of(((2, 9, 11, 13), (5, 9, 3, 3), {"pads": [1, 1, 1, 1]})),
        ["conv2d.flat{channels=5,", "conv2d.im2col{channels=5,"],
    ),
    "three dilated": (
        lambda: model_of(((1, 8, 10, 9), (6, 4, 2, 3), {"group": 2, "dilations": [2, 1], "pads": [0, 1, 2, 1]})),
        ["conv2d.flat{channels=3,", "conv2d.flat{channels=4,"],
    ),
    "attention": (lambda: attention_model(2, 21, 7), ["packed=True", "packed=False"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_plan_computes_the_same(kind, tmp_path):
    make, wanted_plans = KINDS[kind]
    model, data = make()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = np.random.default_rng(7).standard_normal(data).astype("float32")
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    listed = plans_of(path)
    workload = max(listed, key=lambda w: len(listed[w]))
    for part in wanted_plans:
        plans = [p for p in listed[workload] if part in p]
        assert plans, (part, listed[workload])
        for plan in plans[:1] + plans[-1:]:
            got, _ = answer(model, x, {"lathe.plans": f"{workload} {plan}\n"})
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=plan)


def test_a_plan_that_cannot_be_is_refused(tmp_path):
    model, data = model_of(CONVOLUTIONS[0])
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    workload = next(w for w in plans_of(path) if w.startswith("nn.conv2d"))
    x = np.zeros(data, "float32")
    with pytest.raises(lathe.error.LatheError, match="no implementation of this operator has that name"):
        answer(model, x, {"lathe.plans": f"{workload} conv2d.fast{{a=1}}"})
    with pytest.raises(lathe.error.LatheError, match="does not serve this call"):
        answer(model, x, {"lathe.plans": f"{workload} conv2d.depthwise{{block=8, x=1, band=1}}"})


def test_plans_stand_in_the_artefact(tmp_path):
    model, _ = model_of(CONVOLUTIONS[2])
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    subprocess.run([PROGRAM, "compile", path, "-o", tmp_path / "m.so"], check=True)
    said = subprocess.run(
        [PROGRAM, "inspect", tmp_path / "m.so", "--plans"], check=True, text=True, capture_output=True
    )
    assert "nn.conv2d-" in said.stdout and "{" in said.stdout
    line = next(k for k in said.stdout.splitlines() if "nn.conv2d-" in k)
    given = tmp_path / "plans.txt"
    given.write_text(said.stdout)
    subprocess.run([PROGRAM, "compile", path, "-o", tmp_path / "again.so", "--plan", given], check=True)
    again = subprocess.run(
        [PROGRAM, "inspect", tmp_path / "again.so", "--plans"], check=True, text=True, capture_output=True
    )
    assert line in again.stdout
    given.write_text("these are no plans\n")
    refused = subprocess.run(
        [PROGRAM, "compile", path, "-o", tmp_path / "no.so", "--plan", given], text=True, capture_output=True
    )
    assert refused.returncode == 1 and "line 1 of the plans" in refused.stderr


def test_a_loop_that_threads_may_not_share_stays_scheduled():
    """The mean over 13 x 13 positions: vectors also where nothing proves that threads may share the loop."""
    x = np.random.default_rng(2).standard_normal((1, 1000, 13, 13)).astype("float32")
    data = relay.var("x", shape=x.shape)
    mod = lathe.IRModule.from_expr(relay.Function([data], relay.nn.global_avg_pool2d(data)))
    with lathe.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="llvm -num-cores=2")
    assert all(n.impl.startswith("generic") for n in library.model.nodes())
    runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
    runner.set_input("x", x)
    runner.run()
    np.testing.assert_allclose(runner.get_output(0).numpy(), x.mean((2, 3), keepdims=True), rtol=1e-4, atol=1e-5)


def kernel_text(folder, function):
    """The scheduled program of a function that becomes one kernel."""
    folder.mkdir(exist_ok=True)
    program = folder / "program.relay"
    program.write_text(lathe.IRModule.from_expr(function).astext())
    command = ["compile", str(program), "-o", str(folder / "program.so"), "--dump-dir", str(folder / "stages")]
    subprocess.run([PROGRAM, *command], check=True, capture_output=True)
    (kernel,) = (folder / "stages").glob("*.tir")
    return kernel.read_text()


def test_a_value_with_several_uses_keeps_vectors(tmp_path):
    """x ** c / c is used three times by what ends up as one block: it goes into it, and the loop into vectors."""
    x = relay.var("x", shape=(50, 6))
    c = relay.const(np.linspace(0.5, 2, 6).astype("float32"))
    d = relay.divide(relay.power(relay.exp(x), c), c)
    zero, infinite = relay.const(np.float32(0)), relay.const(np.float32(np.inf))
    y = relay.add(relay.where(relay.equal(d, infinite), zero, d), d)
    text = kernel_text(tmp_path, relay.Function([x], y))
    assert "T.vectorized(" in text and "alloc_buffer" not in text


def test_sums_in_vectors(tmp_path):
    """Over all axes, the last ones of a few elements; along both operands, a few rows of which share what is read."""
    x = relay.var("x", shape=(19, 4, 7, 1))
    assert "T.vectorized(" in kernel_text(tmp_path / "all", relay.Function([x], relay.sum(x)))
    a, b = relay.var("a", shape=(3, 64)), relay.var("b", shape=(20, 64))
    text = kernel_text(tmp_path / "dense", relay.Function([a, b], relay.nn.dense(a, b)))
    assert "T.vectorized(" in text and text.count("T.unroll(") >= 2


def test_products_with_few_columns_have_plans():
    a, b = relay.var("a", shape=(2, 5, 50)), relay.var("b", shape=(2, 50, 3))
    mod = lathe.IRModule.from_expr(relay.Function([a, b], relay.nn.batch_matmul(a, b, transpose_b=False)))
    (node,) = relay.build(mod, target="llvm").model.nodes()
    assert node.impl == "matmul.tiled"


# Relay text and what numpy makes of x: moves, elementary functions, sums along either axis
GENERIC = [
    ("exp(%x)", np.exp),
    ("transpose(%x, axes=[1, 0])", np.transpose),
    ("concatenate((%x, %x), axis=1)", lambda x: np.concatenate([x, x], 1)),
    ("sum(%x, axis=[1])", lambda x: x.sum(1)),
    ("sum(%x, axis=[0])", lambda x: x.sum(0)),
    ("max(%x, axis=[0])", lambda x: x.max(0)),
]


def run_text(folder, text, x, plans="", key="lathe.plans"):
    """What a function of %x gives, and "WORKLOAD PLAN" of its kernel as the artefact has it."""
    sizes = ", ".join(map(str, x.shape))
    mod = lathe.parser.fromtext(f'#[version = "0.0.5"]\ndef @main(%x: Tensor[({sizes}), float32]) {{ {text} }}')
    with lathe.transform.PassContext(opt_level=3, config={key: plans}):
        library = relay.build(mod, target="llvm -num-cores=2")
    runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
    runner.set_input("x", x)
    runner.run()
    library.export_library(str(folder / "m.so"))
    said = subprocess.run([PROGRAM, "inspect", folder / "m.so", "--plans"], check=True, text=True, capture_output=True)
    return runner.get_output(0).numpy(), said.stdout.split("  #")[0]


@pytest.mark.parametrize("text, meaning", GENERIC, ids=[t for t, _ in GENERIC])
def test_plans_of_the_generic_schedule(text, meaning, tmp_path):
    """Any of them computes the same, and stands in the artefact as it was given."""
    x = np.random.default_rng(8).standard_normal((67, 131)).astype("float32")
    got, line = run_text(tmp_path, text, x)
    workload, plain = line.split(" ", 1)
    assert plain == "generic{vectors=0, threads=0, rows=0, along=False}"
    np.testing.assert_allclose(got, meaning(x), rtol=1e-5, atol=1e-4)
    sums = text.startswith(("sum", "max"))
    for vectors, threads, rows, along in ((1, 0, 1, False), (2, 1, 4, True), (8, 0, 8, False)):
        plan = f"generic{{vectors={vectors}, threads={threads}, rows={rows * sums}, along={bool(along * sums)}}}"
        got, taken = run_text(tmp_path, text, x, f"{workload} {plan}")
        assert taken == f"{workload} {plan}"
        np.testing.assert_allclose(got, meaning(x), rtol=1e-5, atol=1e-4)


def test_a_generic_plan_says_what_it_may_be(tmp_path):
    x = np.ones((64, 4096), "float32")
    _, line = run_text(tmp_path, "exp(%x)", x)
    workload = line.split(" ", 1)[0]
    for wrong, why in (
        ("vectors=3, threads=0, rows=0, along=False", "it may be 0, 1, 2, 4, 8"),
        ("vectors=1, threads=0, rows=2, along=False", "rows=2 is not possible here"),
        ("vectors=1, threads=0, rows=0, along=False, lanes=4", "generic has no field 'lanes'"),
    ):
        with pytest.raises(lathe.error.LatheError, match=why):
            run_text(tmp_path, "exp(%x)", x, f"{workload} generic{{{wrong}}}")
    program = tmp_path / "exp.relay"
    program.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(64, 4096), float32]) { exp(%x) }')
    given = tmp_path / "plans.txt"
    given.write_text(f"{workload} generic{{vectors=2, threads=1, rows=0, along=False}}\n")
    command = [PROGRAM, "compile", program, "-o", tmp_path / "exp.so", "--target", "llvm -num-cores=2"]
    for more, loops in (([], "T.parallel("), (["--plan", given], "T.vectorized(8)")):
        subprocess.run([*command, *more, "--dump-dir", tmp_path / loops[2:5]], check=True, capture_output=True)
        (kernel,) = (tmp_path / loops[2:5]).glob("*.tir")
        assert (loops in kernel.read_text()) and (("T.parallel(" in kernel.read_text()) != bool(more))


def test_the_generic_schedule_is_tuned(tmp_path):
    """Its plans are candidates, and a measured one is taken in the place of the untuned."""
    x = np.random.default_rng(4).standard_normal((31, 500)).astype("float32")
    mod = lathe.parser.fromtext('#[version = "0.0.5"]\ndef @main(%x: Tensor[(31, 500), float32]) { sum(%x, axis=[1]) }')
    (task,) = lathe.tuning.extract_tasks(mod)
    other = "generic{vectors=2, threads=1, rows=4, along=True}"
    assert task.base.startswith("generic{vectors=0") and other in dict(task.plans) and len(task.plans) == 100
    workload = run_text(tmp_path, "sum(%x, axis=[1])", x)[1].split()[0]
    for line in (f"{workload} {other}", f"{workload} {task.base} => {other}"):
        got, taken = run_text(tmp_path, "sum(%x, axis=[1])", x, line, "lathe.tuned")
        assert taken == f"{workload} {other}"
        np.testing.assert_allclose(got, x.sum(1), rtol=1e-4, atol=1e-4)
