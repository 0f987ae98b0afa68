"""The debug executor: time of every node, tensors, comparison with the interpreter."""

import numpy as np
import pytest

import lathe
from lathe import error, relay, te
from lathe.contrib.debugger import debug_executor


@pytest.fixture(scope="module")
def lib():
    x, w = relay.var("x", shape=(2, 8)), relay.const(np.random.default_rng(0).normal(size=(4, 8)).astype("float32"))
    out = relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, w)))
    with lathe.transform.PassContext(opt_level=3):
        return relay.build(relay.Function([x], out))


X = np.random.default_rng(1).normal(size=(2, 8)).astype("float32")


def test_run_shows_every_node(lib, capsys, tmp_path):
    m = debug_executor.create(lib.get_graph_json(), lib, lathe.cpu(0), dump_root=str(tmp_path / "dump"))
    m.set_input("x", X)
    m.run()
    shown = capsys.readouterr().out
    assert "implementation" in shown and "dense" in shown and "100.0%" in shown
    assert len(m.report.calls) == lib.model.info.num_nodes and m.report.seconds > 0
    files = sorted((tmp_path / "dump").glob("*.npy"))
    assert len(files) >= len(m.report.calls)
    np.testing.assert_allclose(np.load(files[-1]), m.get_output(0).numpy())
    last = m.report.calls[-1]
    np.testing.assert_allclose(m.debug_get_output(last.node.name).numpy(), m.get_output(0).numpy())
    np.testing.assert_allclose(m.debug_get_output(last.index).numpy().sum(-1), 1, rtol=1e-5)
    with pytest.raises(error.NotFoundError, match="no node 'nothing'"):
        m.debug_get_output("nothing")


def test_profile_and_individual(lib):
    m = debug_executor.GraphModuleDebug(
        lib["debug_create"]("default", lathe.cpu(0)), [lathe.cpu(0)], lib.get_graph_json(), None
    )
    report = m.profile(x=X)
    assert len(report.calls) == lib.model.info.num_nodes and "us" in report.table(aggregate=True)
    times = m.run_individual(number=2, repeat=2)
    assert len(times) == len(report.calls) and all(t > 0 for t in times)


def test_compare_agrees(lib):
    m = debug_executor.create(None, lib, lathe.cpu(0))
    agree, sentence = m.compare(x=X)
    assert agree and f"all {lib.model.info.num_nodes} kernel calls agree" in sentence


def test_compare_names_the_first_node_that_differs():
    """An operator whose meaning changes after the model was compiled."""
    factor = [2.0]

    @relay.op.register("debug.changing", args="data")
    class _:
        def type(data, attrs):
            return data

        def compute(data, attrs):
            k = factor[0]
            return te.compute(data.shape, lambda *i: data(*i) * k)

    x = relay.var("x", shape=(2, 8))
    net = relay.build(relay.Function([x], relay.nn.softmax(relay.Call("debug.changing", [relay.nn.softmax(x)]))))
    m = debug_executor.create(None, net, lathe.cpu(0))
    assert m.compare(x=X)[0]
    factor[0] = 3.0
    agree, sentence = m.compare(x=X)
    assert (
        not agree
        and sentence.startswith("node 1 ")
        and "debug_changing" in sentence
        and "the interpreter gives" in sentence
    )


def test_a_loaded_model_has_no_graph(lib, tmp_path):
    lib.export_library(tmp_path / "net.so")
    loaded = debug_executor.create(None, lathe.runtime.load_module(tmp_path / "net.so"), lathe.cpu(0))
    with pytest.raises(error.UnsupportedError, match="loaded from a file"):
        loaded.compare(x=X)
    loaded.run(quiet=True, x=X)
    assert len(loaded.report.calls) == lib.model.info.num_nodes


def test_what_a_watcher_raises_comes_out(lib):
    ex = lib["default"]().executor
    ex.set_input(0, X)

    def fail(*_args):
        raise KeyError("watched")

    ex.watch(fail)
    with pytest.raises(KeyError, match="watched"):
        ex.run()
    ex.watch(None)
    ex.run()


def test_cycles_are_freed_in_order():
    """A watcher that holds its own executor makes a cycle: whoever goes first, nothing reads freed memory."""
    import gc

    for _ in range(20):
        x = relay.var("x", shape=(2, 8))
        m = debug_executor.create(None, relay.build(relay.Function([x], relay.exp(x))), lathe.cpu(0))
        m._executor.watch(lambda *a, m=m: None)
        m._executor.model_too = m._executor._model
        del m, x
        gc.collect()
