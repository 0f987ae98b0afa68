"""Weights as they were trained, in small files: brought into form when the model is loaded, bit for bit what a file
with ready weights has; the cache of what loading made."""

import os
import stat
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.runtime.model import Executor, Model

LATHE = os.path.join(os.environ.get("LATHE_LIBRARY_PATH", "build"), "lathe")
X = np.random.default_rng(1).standard_normal((1, 64, 28, 28)).astype("float32")


def network():
    """Two convolutions by Winograd's algorithm, one that stays as it is, a product."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (64, 64, 3, 3), "w2": (96, 64, 3, 3), "w3": (16, 96, 1, 1), "w4": (10, 16)}
    params = {k: rng.standard_normal(s).astype("float32") / 10 for k, s in shapes.items()}
    v = {k: relay.var(k, shape=s) for k, s in shapes.items()}
    y = relay.nn.relu(relay.nn.conv2d(relay.var("x", shape=X.shape), v["w1"], padding=(1, 1)))
    y = relay.nn.relu(relay.nn.conv2d(y, v["w2"], padding=(1, 1)))
    y = relay.nn.relu(relay.nn.conv2d(y, v["w3"]))
    y = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)), v["w4"])
    mod = lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))
    return mod, params


def run(model):
    ex = Executor(model)
    ex.set_input("x", X)
    ex.run()
    return ex.get_output(0).numpy()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    mod, params = network()
    with lathe.transform.PassContext(opt_level=3):
        made = {how: relay.build(mod, target="llvm", params=params, weights=how) for how in ("trained", "ready")}
    paths = {how: str(folder / f"{how}.so") for how in made}
    for how, lib in made.items():
        lib.export_library(paths[how])
    return made, paths, sum(p.nbytes for p in params.values())


def test_small_and_equal(files):
    made, paths, trained = files
    small, ready = Model.load(paths["trained"]), Model.load(paths["ready"])
    assert small.info.weights_bytes <= 1.02 * trained + 1024 < ready.info.weights_bytes
    assert small.info.prepared_bytes > 0 == ready.info.prepared_bytes
    assert os.path.getsize(paths["trained"]) < os.path.getsize(paths["ready"]) - trained
    want = run(ready)
    assert np.isfinite(want).all() and np.ptp(want) > 0
    np.testing.assert_array_equal(run(small), want)
    for how in made:        # in memory too
        m = graph_executor.GraphModule(made[how]["default"](lathe.cpu(0)))
        m.run(x=X)
        np.testing.assert_array_equal(m.get_output(0).numpy(), want)


def test_a_weight_in_two_forms():
    """An embedding that is also the matrix of the last product is stored once."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((512, 64)).astype("float32")
    ids, w = relay.var("ids", shape=(5,), dtype="int64"), relay.var("w", shape=table.shape)
    y = relay.nn.dense(relay.take(w, ids, axis=0), w)
    mod = lathe.IRModule.from_expr(relay.Function([ids, w], y))
    given, answers = np.array([0, 511, 7, 7, 300]), {}
    for how in ("trained", "ready"):
        with lathe.transform.PassContext(opt_level=3):
            lib = relay.build(mod, target="llvm", params={"w": table}, weights=how)
        info = lib.model.info
        m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
        m.run(ids=given)
        answers[how] = m.get_output(0).numpy()
        if how == "trained":
            assert info.weights_bytes <= 1.02 * table.nbytes + 1024 and info.prepared_bytes >= table.nbytes
        else:
            assert info.weights_bytes >= 2 * table.nbytes
    np.testing.assert_array_equal(answers["trained"], answers["ready"])
    np.testing.assert_allclose(answers["ready"], table[given] @ table.T, rtol=1e-4, atol=1e-4)


def test_prepared_bytes_are_those_of_ready(files, tmp_path):
    """The block that loading makes: each weight in it is somewhere in the file that has them ready."""
    _, paths, _ = files
    Model.load(paths["trained"], weights_cache=tmp_path / "c")
    (name,) = [f for f in os.listdir(tmp_path / "c") if f.endswith(".weights")]
    block, ready = (tmp_path / "c" / name).read_bytes()[4096:], open(paths["ready"], "rb").read()
    sizes = [4 * 6 * 6 * 96 * 64, 4 * 6 * 6 * 64 * 64]      # F(4, 3), or F(2, 3) below
    if sum(sizes) != len(block):
        sizes = [s * 16 // 36 for s in sizes]
    assert sum(sizes) == len(block) and block[:sizes[0]] in ready and block[sizes[0]:] in ready


def test_cache(files, tmp_path):
    _, paths, _ = files
    want, cache = run(Model.load(paths["ready"])), tmp_path / "cache"
    first, second = (Model.load(paths["trained"], weights_cache=cache) for _ in range(2))
    assert not first.info.from_cache and second.info.from_cache and not second.info.cache_note
    np.testing.assert_array_equal(run(first), want)
    np.testing.assert_array_equal(run(second), want)
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700
    assert not Model.load(paths["ready"], weights_cache=cache).info.from_cache      # has nothing to prepare
    os.chmod(cache, 0o777)
    third = Model.load(paths["trained"], weights_cache=cache)
    assert not third.info.from_cache and b"not yours alone" in third.info.cache_note
    np.testing.assert_array_equal(run(third), want)


def test_refused(files, tmp_path):
    made, _, _ = files
    with pytest.raises(lathe.error.UnsupportedError, match="compile with weights 'ready'"):
        made["trained"].export_library(str(tmp_path / "m.o"))
    with pytest.raises(lathe.error.ArgumentError, match="'ready' or as they were 'trained', not 'raw'"):
        relay.build(network()[0], weights="raw")


def test_command_line(files, tmp_path):
    """Small is what `lathe compile` writes; `--weights ready` asks for the other."""
    mod, params = network()
    text = tmp_path / "net.relay"
    bound = relay.build_module.as_module(mod, params)
    text.write_text(bound.astext(show_meta_data=True))
    size = {}
    for how in ("trained", "ready", None):
        out = tmp_path / f"{how}.so"
        subprocess.run([LATHE, "compile", text, "-o", out, *(["--weights", how] if how else [])], check=True)
        size[how] = out.stat().st_size
        shown = subprocess.run([LATHE, "inspect", out], check=True, capture_output=True, text=True).stdout
        assert ("as they were trained" in shown) == (how != "ready")
    assert size[None] == size["trained"] < size["ready"]
    for k in range(2):
        command = [LATHE, "run", tmp_path / "trained.so", "--input", "ones", "--weights-cache", tmp_path / "c"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "output_0: float32 (1, 10)" in done.stdout and not done.stderr
    refused = subprocess.run([LATHE, "compile", text, "-o", tmp_path / "m.o", "--weights", "trained"], capture_output=True, text=True)
    assert refused.returncode == 2 and "--weights trained is for what is loaded" in refused.stderr
