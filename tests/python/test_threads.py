"""One compiled model, many threads: each its own executor, the weights shared."""

import threading

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor

pytestmark = pytest.mark.alone

@pytest.fixture(scope="module")
def lib():
    mod, params = relay.testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32), num_classes=10)
    with lathe.transform.PassContext(opt_level=3):
        return relay.build(mod, params=params)


def work(lib, seed, runs, out):
    try:
        m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
        rng = np.random.default_rng(seed)
        results = []
        for _ in range(runs):
            m.set_input(0, rng.normal(size=(1, 3, 32, 32)).astype("float32"))
            m.run()
            results.append(m.get_output(0).numpy())
        out[seed] = results
    except BaseException as e:  # pylint: disable=broad-except
        out[seed] = e


def in_threads(lib, n, runs):
    out = {}
    threads = [threading.Thread(target=work, args=(lib, i, runs, out)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    return out


@pytest.mark.parametrize("loaded", [False, True])
def test_threads_with_their_own_executors(lib, loaded, tmp_path):
    if loaded:
        lib.export_library(tmp_path / "net.so")
        lib = lathe.runtime.load_module(tmp_path / "net.so")
    want = {}
    for i in range(4):
        work(lib, i, 5, want)
    got = in_threads(lib, 4, 5)
    for i in range(4):
        assert not isinstance(got[i], BaseException), got[i]
        for a, b in zip(got[i], want[i]):
            np.testing.assert_array_equal(a, b)


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_executors_share_the_weights(lib):
    info = lib.model.info
    assert info.weights_bytes > 20e6
    first = lib["default"]().executor
    first.set_input(0, np.zeros((1, 3, 32, 32), "float32"))
    first.run()
    before = resident()
    more = [lib["default"]().executor for _ in range(4)]
    for ex in more:
        ex.set_input(0, np.zeros((1, 3, 32, 32), "float32"))
        ex.run()
    assert resident() - before < info.weights_bytes


def test_compiling_while_others_run(lib):
    """The compiler is used by one thread at a time; models that run do not wait for it."""
    done = {}
    runner = threading.Thread(target=work, args=(lib, 0, 20, done))
    runner.start()
    built = []

    def compile_one(k):
        x = relay.var("x", shape=(k + 1,))
        built.append(
            relay.create_executor("graph").evaluate(relay.Function([x], x * 2.0))(np.ones(k + 1, "float32")).numpy()
        )

    compilers = [threading.Thread(target=compile_one, args=(k,)) for k in range(3)]
    for t in compilers:
        t.start()
    for t in [runner, *compilers]:
        t.join(120)
    assert len(done[0]) == 20 and sorted(len(b) for b in built) == [1, 2, 3] and all((b == 2).all() for b in built)


def test_threads_of_one_executor(lib):
    ex = lib["default"]().executor
    x = np.random.default_rng(9).normal(size=(1, 3, 32, 32)).astype("float32")
    outs = []
    for n in (1, 2, 0):
        ex.set_threads(n)
        ex.set_input(0, x)
        ex.run()
        outs.append(ex.get_output(0).numpy())
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(outs[0], outs[2], rtol=1e-5, atol=1e-7)
