"""MetaSchedule's and Ansor's names: loop programs and networks tuned, and built with what was found."""

import numpy as np
import pytest

import lathe as tvm
from lathe import auto_scheduler, relay, te
from lathe import meta_schedule as ms
from lathe.contrib import graph_executor
from lathe.script import tir as T

TARGET = f"{tvm.target.Target()} -num-cores=1"


def stencil(n):
    """A computation that no plan covers."""
    a = te.placeholder((n + 2, n + 2), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + a[i + 1, j + 1] * 2.0 + a[i + 2, j + 2], name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, te.compute((n, n), lambda i, j: te.sum(b[i, k] * b[k, j], axis=k), name="C")]


def expected(a):
    n = a.shape[0] - 2
    b = a[:n, :n] + 2 * a[1 : n + 1, 1 : n + 1] + a[2:, 2:]
    return b @ b


def check(f, n):
    a = np.random.default_rng(1).random((n + 2, n + 2)).astype("float32")
    out = tvm.nd.empty((n, n))
    f(tvm.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), expected(a), rtol=1e-4)


def test_tune_tir(tmp_path):
    mod = tvm.IRModule({"main": te.create_prim_func(stencil(48))})
    database = ms.tune_tir(mod, TARGET, work_dir=str(tmp_path), max_trials_global=8)
    assert 0 < len(database) <= 8 and database.has_workload(mod, TARGET)
    sch = ms.tir_integration.compile_tir(database, mod, TARGET)
    assert sch is not None  # the plain loops are beaten by any of eight
    assert "sch.vectorize(" in str(sch.trace)
    check(tvm.build(sch.mod, target=TARGET), 48)
    best = database.query_tuning_record(mod, TARGET)
    assert best.run_secs and best.workload.startswith("tir.main-")
    other = tvm.IRModule({"main": te.create_prim_func(stencil(32))})
    assert ms.tir_integration.compile_tir(database, other, TARGET) is None
    again = ms.tune_tir(mod, TARGET, work_dir=str(tmp_path), max_trials_global=2)
    assert len(again) > len(database) - 1
    assert len(ms.tune_tir(mod, TARGET, work_dir="unused", max_trials_global=1, database="memory")) == 1
    with pytest.raises(tvm.error.UnsupportedError, match="module_equality is 'structural'"):
        ms.tune_tir(mod, TARGET, str(tmp_path), 1, module_equality="ignore-ndarray")


def test_what_cannot_be_tuned(tmp_path):
    @T.prim_func
    def open_size(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i in range(n):
            with T.block("B"):
                vi = T.axis.remap("S", [i])
                B[vi] = A[vi] + T.float32(1)

    database = ms.tune_tir(open_size, TARGET, str(tmp_path), 1)
    assert len(database) == 0  # every candidate is recorded as what it is: not to be measured
    assert "sizes are known" in tvm.tuning.Database(database.path).records()[0]["note"]


def network():
    x = relay.var("x", shape=(1, 8, 12, 12))
    w = relay.const(np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32"))
    return tvm.IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))))


def run(lib, x):
    g = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    g.set_input("x", x)
    g.run()
    return g.get_output(0).numpy()


def test_relay(tmp_path):
    mod = network()
    tasks = ms.relay_integration.extract_tasks(mod, TARGET)
    assert [t.weight for t in tasks] == [1] and "nn.conv2d" in str(tasks[0].mod)
    database = ms.relay_integration.tune_relay(mod, {}, TARGET, str(tmp_path), 3)
    assert len(database) >= 3
    x = np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        plain = run(relay.build(mod, target=TARGET), x)
    np.testing.assert_allclose(
        run(ms.relay_integration.compile_relay(database, mod, TARGET, {}), x), plain, rtol=1e-3, atol=1e-3
    )
    with database, tvm.transform.PassContext(opt_level=3):
        np.testing.assert_allclose(run(relay.build(mod, target=TARGET), x), plain, rtol=1e-3, atol=1e-3)
    with ms.MemoryDatabase():  # nothing is in it
        relay.build(mod, target=TARGET)


def test_auto_scheduler(tmp_path):
    auto_scheduler.register_workload("test_stencil", stencil, override=True)
    log = str(tmp_path / "s.json")
    task = auto_scheduler.SearchTask(func="test_stencil", args=(40,), target=TARGET)
    assert task.compute_dag.flop_ct == 2 * 40**3 + 40**2
    with pytest.raises(tvm.error.ArgumentError, match="has no schedule for this task"):
        task.apply_best(log)
    task.tune(
        auto_scheduler.TuningOptions(num_measure_trials=6, measure_callbacks=[auto_scheduler.RecordToFile(log)])
    )
    sch, args = task.apply_best(log)
    check(tvm.build(sch, args, TARGET), 40)
    assert "sch.get_block" in task.print_best(log)
    with pytest.raises(tvm.error.ArgumentError, match="no workload 'none'"):
        auto_scheduler.SearchTask(func="none", target=TARGET)


def test_auto_scheduler_network(tmp_path):
    mod, log = network(), str(tmp_path / "n.json")
    tasks, weights = auto_scheduler.extract_tasks(mod, {}, TARGET)
    assert weights == [1]
    auto_scheduler.TaskScheduler(tasks, weights).tune(
        auto_scheduler.TuningOptions(num_measure_trials=2, measure_callbacks=[auto_scheduler.RecordToFile(log)])
    )
    with auto_scheduler.ApplyHistoryBest(log), tvm.transform.PassContext(opt_level=3):
        relay.build(mod, target=TARGET)
    assert len(tvm.tuning.Database(log).records()) >= 2
