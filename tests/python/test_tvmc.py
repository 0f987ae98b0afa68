"""lathe.driver.tvmc in Python and as a program, against numpy."""

import io
import os
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import lathe as tvm
from lathe import relay
from lathe.contrib import cc
from lathe.driver import tvmc
from lathe.driver.tvmc import compiler, frontends, main as program, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(4)
WEIGHT = RNG.normal(size=(3, 5)).astype("float32")
DATA = RNG.normal(size=(2, 5)).astype("float32")
WANT = np.maximum(DATA @ WEIGHT.T, 0)
pytestmark = pytest.mark.skipif(not cc.get_cc(), reason="needs a C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    onnx = pytest.importorskip("onnx")
    place = tmp_path_factory.mktemp("tvmc")
    h = onnx.helper
    nodes = [h.make_node("Gemm", ["data", "w"], ["g"], transB=1), h.make_node("Relu", ["g"], ["out"])]
    value = h.make_tensor_value_info
    graph = h.make_graph(
        nodes,
        "net",
        [value("data", 1, ["n", 5])],
        [value("out", 1, ["n", 3])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), str(place / "net.onnx"))
    np.savez(place / "in.npz", data=DATA)
    return place


def command(*args, cwd):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        [sys.executable, "-m", "lathe.driver.tvmc", *map(str, args)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# ---- in Python


def test_load_compile_run(folder, target, tmp_path):
    model = tvmc.load(folder / "net.onnx", shape_dict={"data": [2, 5]})
    package = tvmc.compile(model, target=target, package_path=tmp_path / "net.tar")
    assert (
        sorted(tarfile.open(tmp_path / "net.tar").getnames()) == ["mod.json", "mod.params", "mod.so"]
        and "dense" in package.graph
    )
    result = tvmc.run(package, device="cpu", inputs={"data": DATA})
    tvm.testing.assert_allclose(result.get_output("output_0"), WANT, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="output_0"):
        result.get_output("output_7")
    with pytest.raises(ValueError, match="benchmark"):
        result.format_times()
    timed = tvmc.run(
        tvmc.TVMCPackage(tmp_path / "net.tar"), "cpu", fill_mode="ones", benchmark=True, repeat=3, number=2
    )
    assert len(timed.times.results) == 3 and "mean (ms)" in timed.format_times()
    tvm.testing.assert_allclose(
        timed.outputs["output_0"], np.maximum(np.ones((2, 5)) @ WEIGHT.T, 0), rtol=1e-5, atol=1e-6
    )


def test_open_sizes_are_to_be_given(folder):
    package = tvmc.compile(tvmc.load(folder / "net.onnx"), target="c")
    with pytest.raises(ValueError, match="'data'.*size is open"):
        tvmc.run(package, "cpu")
    tvm.testing.assert_allclose(
        tvmc.run(package, "cpu", inputs={"data": DATA}).outputs["output_0"], WANT, rtol=1e-5, atol=1e-6
    )


def test_objects_in_the_package(folder, tmp_path):
    model = tvmc.load(folder / "net.onnx", shape_dict={"data": [2, 5]})
    package = tvmc.compile(model, "c", package_path=tmp_path / "x.tar", output_format="tar", dump_code="c,relay")
    assert (
        package.lib_name == "mod.tar"
        and "nn.dense" in (tmp_path / "x.tar.relay").read_text()
        and "float" in (tmp_path / "x.tar.c").read_text()
    )
    tvm.testing.assert_allclose(
        tvmc.run(package, "cpu", inputs={"data": DATA}).outputs["output_0"], WANT, rtol=1e-5, atol=1e-6
    )


def test_a_model_is_saved_and_read_again(folder, tmp_path):
    model = tvmc.load(folder / "net.onnx", shape_dict={"data": [2, 5]})
    text = io.StringIO()
    model.summary(text)
    assert "nn.dense" in text.getvalue()
    model.save(tmp_path / "saved.tar")
    for again in (tvmc.load(tmp_path / "saved.tar"), tvmc.TVMCModel(model_path=tmp_path / "saved.tar")):
        assert tvm.ir.structural_equal(again.mod, model.mod)
    (tmp_path / "net.relay").write_text(model.mod.astext())
    assert tvm.ir.structural_equal(tvmc.load(tmp_path / "net.relay").mod, model.mod)


def test_parameters_of_a_model(tmp_path):
    x, w = relay.var("x", shape=(2, 5)), relay.var("w", shape=(3, 5))
    model = tvmc.TVMCModel(tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w))), {"w": tvm.nd.array(WEIGHT)})
    model.save(tmp_path / "saved.tar")
    package = tvmc.compile(tvmc.load(tmp_path / "saved.tar"), "c")
    tvm.testing.assert_allclose(tvmc.run(package, inputs={"x": DATA}).outputs["output_0"], WANT, rtol=1e-5, atol=1e-6)


def test_layouts_and_precision():
    x, w = relay.var("x", shape=(1, 4, 6, 6)), relay.const(RNG.normal(size=(4, 4, 3, 3)).astype("float32"))
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(x, w, padding=(1, 1)))
    given = {"x": RNG.normal(size=(1, 4, 6, 6)).astype("float32")}
    want = tvmc.run(tvmc.compile(tvmc.TVMCModel(mod, {}), "c"), inputs=given).outputs["output_0"]
    assert 'data_layout="NHWC"' in str(compiler.convert_layout(mod, "NHWC"))
    other = tvmc.compile(tvmc.TVMCModel(mod, {}), "c", desired_layout="NHWC", desired_layout_ops=["nn.conv2d"])
    tvm.testing.assert_allclose(tvmc.run(other, inputs=given).outputs["output_0"], want, rtol=1e-4, atol=1e-5)
    half = tvmc.run(tvmc.compile(tvmc.TVMCModel(mod, {}), "c", mixed_precision=True), inputs=given).outputs["output_0"]
    tvm.testing.assert_allclose(half.astype("float32"), want, rtol=5e-2, atol=5e-2)
    assert (half.astype("float32") != want).any()


def test_what_is_refused(folder, tmp_path):
    model = tvmc.load(folder / "net.onnx")
    for kwargs, said in (
        ({"output_format": "mlf"}, "mlf"),
        ({"no_such": 1}, "no_such"),
    ):
        with pytest.raises(NotImplementedError, match=said):
            tvmc.compile(model, "c", **kwargs)
    with pytest.raises(NotImplementedError, match="compiled for a CPU, not for .cuda"):
        tvmc.compile(model, "cuda, llvm")
    with pytest.warns(UserWarning, match="use_vm"):
        package = tvmc.compile(model, "c", use_vm=True)
    with pytest.raises(NotImplementedError, match="RPC"):
        tvmc.run(package, "cpu", rpc_key="x")
    with pytest.raises(ValueError, match="no input 'nothing'"):
        tvmc.run(package, "cpu", inputs={"data": DATA, "nothing": DATA})
    with pytest.raises(OSError, match="there is no database 'x.json'"):
        tvmc.compile(model, "c", tuning_records="x.json")
    with pytest.raises(NotImplementedError, match="hostname"):
        tvmc.tune(model, "c", hostname="elsewhere")
    with pytest.raises(NotImplementedError, match="sizes are known"):
        tvmc.tune(model, "c", trials=1)
    (tmp_path / "m.pb").write_text("")
    with pytest.raises(NotImplementedError, match="ONNX"):
        tvmc.load(tmp_path / "m.pb", "pb")
    with pytest.raises(ValueError, match="format"):
        tvmc.load(tmp_path / "m.pb")
    with pytest.raises(OSError, match="no file"):
        tvmc.load(tmp_path / "none.onnx")
    with pytest.raises(OSError, match="no package"):
        tvmc.TVMCPackage(tmp_path / "m.pb")
    assert frontends.get_frontend_names() == ["onnx", "tflite", "relay", "pytorch"]


def test_fill_modes():
    assert (runner.generate_tensor_data((2, 3), "int8", "zeros") == 0).all() and (
        runner.generate_tensor_data((2,), "float16", "ones") == 1
    ).all()
    f, i, b = (runner.generate_tensor_data((500,), t, "random") for t in ("float32", "int64", "bool"))
    assert (
        f.dtype == "float32"
        and -1 <= f.min() < f.max() < 1
        and 0 <= i.min() < i.max() < 128
        and set(b) == {True, False}
    )
    with pytest.raises(ValueError, match="fill_mode"):
        runner.generate_tensor_data((1,), "int8", "twos")


def test_texts():
    assert program.parse_shape_string("data:[1,3,-1] b.0: [2]") == {
        "data": [1, 3, -1],
        "b.0": [2],
    } and program.parse_shape_string("x:[]") == {"x": []}
    for bad in ("data", "data:[a]", "data:[1] more"):
        with pytest.raises(ValueError, match="shapes are written"):
            program.parse_shape_string(bad)
    assert compiler.parse_configs(["relay.FuseOps.max_depth=3", "tir.disable_vectorize=1"]) == {
        "relay.FuseOps.max_depth": 3,
        "tir.disable_vectorize": True,
    }
    with pytest.raises(ValueError, match="type int"):
        compiler.parse_configs(["relay.FuseOps.max_depth=deep"])
    assert (
        compiler.target_text("llvm", {"llvm": {"mcpu": "x"}, "c": {"y": 1}}) == "llvm -mcpu=x"
        and compiler.target_text("llvm -mattr=+a,+b") == "llvm -mattr=+a,+b"
    )


# ---- the program


def test_the_program(folder, tmp_path):
    done = command(
        "compile",
        folder / "net.onnx",
        "--target",
        "c",
        "-o",
        tmp_path / "net.tar",
        "--input-shapes",
        "data:[2,5]",
        "--pass-config",
        "relay.FuseOps.max_depth=1",
        "--disabled-pass",
        "FoldScaleAxis",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    done = command(
        "run",
        tmp_path / "net.tar",
        "-i",
        folder / "in.npz",
        "-o",
        tmp_path / "out.npz",
        "--print-top",
        "2",
        "--print-time",
        cwd=tmp_path,
    )
    assert done.returncode == 0 and "mean (ms)" in done.stdout, done.stderr
    tvm.testing.assert_allclose(np.load(tmp_path / "out.npz")["output_0"], WANT, rtol=1e-5, atol=1e-6)
    assert str(np.argsort(-WANT, axis=-1, kind="stable")[:, :2]) in done.stdout
    done = command("run", tmp_path / "net.tar", "--fill-mode", "zeros", "--profile", cwd=tmp_path)
    assert done.returncode == 0 and "dense" in done.stdout, done.stderr


def test_tune(folder, tmp_path):
    net, records, target = folder / "net.onnx", tmp_path / "records.db", str(tvm.target.Target())
    shapes = ["--input-shapes", "data:[2,5]"]
    done = command("tune", net, "--target", target, *shapes, "-o", records, "--trials", "2", cwd=tmp_path)
    assert done.returncode == 0 and records.exists(), done.stderr
    prior = str(tmp_path / "more.db")
    assert tvmc.tune(tvmc.load(net, shape_dict={"data": [2, 5]}), target, prior, str(records), trials=1) == prior
    assert len(tvm.tuning.Database(prior).entries()) > len(tvm.tuning.Database(records).entries())
    package = tvmc.compile(tvmc.load(net, shape_dict={"data": [2, 5]}), target, tuning_records=prior)
    got = tvmc.run(package, inputs={"data": DATA}).outputs["output_0"]
    tvm.testing.assert_allclose(got, WANT, rtol=1e-5, atol=1e-6)


def test_wrong_command_lines(folder, tmp_path):
    for args, code, said in (
        (["tune", "x.onnx", "--target", "llvm"], 2, "--output"),
        (["tune", "x.onnx", "--target", "llvm", "-o", "t.db"], 1, "no file 'x.onnx'"),
        (["micro", "create-project"], 1, "microcontrollers"),
        (["run", "none.tar"], 1, "none.tar"),
        (["compile", "none.onnx", "--target", "c"], 1, "no file 'none.onnx'"),
        (["compile", str(folder / "net.onnx"), "--target", "c", "--what"], 2, "--what"),
        (
            ["compile", str(folder / "net.onnx"), "--target", "llvm", "--target-llvm-mcpu", "no-such-cpu"],
            1,
            "no-such-cpu",
        ),
        ([], 2, ""),
    ):
        done = command(*args, cwd=tmp_path)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, (args, done.stderr)
    assert command("--version", cwd=tmp_path).stdout.strip() == tvm.__version__
