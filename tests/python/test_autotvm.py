"""AutoTVM's names: templates with knobs, the four tuners, logs, and the best of them; as its first lesson goes."""

import io
import json

import numpy as np
import pytest

import lathe as tvm
from lathe import autotvm, te

TARGET = str(tvm.target.Target())


@autotvm.template("test/matmul")
def matmul(n, l, m, dtype):
    a = te.placeholder((n, l), name="A", dtype=dtype)
    b = te.placeholder((l, m), name="B", dtype=dtype)
    k = te.reduce_axis((0, l), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    k = s[c].op.reduce_axis[0]
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    return s, [a, b, c]


@autotvm.template("test/knobs")
def knobs(n):
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    y, x = s[b].op.axis
    cfg = autotvm.get_config()
    cfg.define_knob("refuse", [0, 1])
    cfg.define_reorder("order", [y, x], "all")
    cfg.define_annotate("inner", [x], "try_unroll_vec")
    cfg.add_flop(n * n)
    if cfg["refuse"].val:
        cfg.raise_error("not this one")
    cfg["order"].apply(s, b, [y, x])
    if cfg["order"].perm == [0, 1]:
        cfg["inner"].apply(s, b, [x], [n], max_unroll=16)
    return s, [a, b]


@autotvm.template("test/wrong")
def wrong(n):
    """A schedule that is fine, of a computation that is another one with one of its knobs."""
    a = te.placeholder((n,), name="A")
    cfg = autotvm.get_config()
    cfg.define_knob("add", [0, 1])
    b = te.compute((n,), lambda i: a[i] + float(cfg["add"].val), name="B")
    return te.create_schedule(b.op), [a, b]


def option():
    return autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=2, repeat=1, min_repeat_ms=10))


def test_space():
    task = autotvm.task.create("test/matmul", args=(12, 8, 16, "float32"), target=TARGET)
    space = task.config_space
    assert len(space) == 6 * 5 and space.dims == [6, 5]  # the divisors of 12 and of 16
    assert task.flop == 2 * 12 * 8 * 16
    assert [e["tile_y"].size for e in (space.get(0), space.get(5))] == [[-1, 1], [-1, 12]]
    assert space.get(29)["tile_x"].size == [-1, 16]
    assert all(space.index_of(space.knobs_of(i)) == i for i in range(30))
    assert "tile_y: Split(policy=factors, product=12, num_outputs=2) len=6" in repr(space)
    with pytest.raises(IndexError):
        space.get(30)
    again = autotvm.ConfigEntity.from_json_dict(json.loads(json.dumps(space.get(7).to_json_dict())))
    assert again == space.get(7) and again.index == 7


def test_split_policies():
    cfg = autotvm.ConfigSpace()
    cfg.define_split("a", cfg.axis(12), num_outputs=3)
    assert all(12 % (e.size[1] * e.size[2]) == 0 for e in cfg.space_map["a"].entities)
    cfg.define_split("b", cfg.axis(12), policy="power2", num_outputs=2)
    assert [e.size[1] for e in cfg.space_map["b"].entities] == [1, 2, 4, 8]
    cfg.define_split("c", cfg.axis(12), policy="candidate", candidate=[[-1, 3], [-1, 5]])
    assert len(cfg.space_map["c"]) == 2
    cfg.define_split("d", cfg.axis(64), num_outputs=2, filter=lambda e: e.size[1] > 8, max_factor=32)
    assert [e.size[1] for e in cfg.space_map["d"].entities] == [16, 32]
    cfg.multi_filter(lambda e: e["b"].size[1] == e["d"].size[1] // 4)
    assert 0 < len(cfg) < cfg.range_length
    with pytest.raises(tvm.error.ArgumentError, match="no policy 'magic'"):
        cfg.define_split("e", cfg.axis(3), policy="magic", num_outputs=2)


@pytest.mark.parametrize("kind", ["RandomTuner", "GridSearchTuner", "GATuner", "XGBTuner"])
def test_tuners(kind):
    task = autotvm.task.create("test/matmul", args=(32, 32, 32, "float32"), target=TARGET)
    log, seen = io.StringIO(), []
    tuner = getattr(autotvm.tuner, kind)(task)
    count = 14 if kind == "XGBTuner" else 9
    tuner.tune(
        n_trial=count,
        measure_option=option(),
        callbacks=[
            autotvm.callback.log_to_file(log),
            lambda t, inputs, results: seen.extend(i.config.index for i in inputs),
        ],
    )
    assert len(seen) == len(set(seen)) == count  # none twice
    if kind == "GridSearchTuner":
        assert seen == list(range(count))
    pairs = list(autotvm.record.load_from_buffer(log.getvalue().splitlines()))
    assert len(pairs) == count and all(r.error_no == 0 for _, r in pairs)
    best = min(pairs, key=lambda p: sorted(p[1].costs)[len(p[1].costs) // 2])
    assert tuner.best_config == best[0].config and tuner.best_flops > 0


def test_a_space_ends():
    task = autotvm.task.create("test/matmul", args=(2, 2, 2, "float32"), target=TARGET)
    for kind in (autotvm.RandomTuner, autotvm.GATuner):
        tuner = kind(task)
        tuner.tune(n_trial=100, measure_option=option())
        assert len(tuner.visited) == 4


def test_what_fails_is_recorded():
    task = autotvm.task.create("test/knobs", args=(32,), target=TARGET)
    assert task.flop == 32 * 32 and len(task.config_space) == 2 * 2 * 3
    results = {}
    autotvm.GridSearchTuner(task).tune(
        100, option(), callbacks=[lambda t, ins, res: results.update({repr(i.config): r for i, r in zip(ins, res)})]
    )
    assert len(results) == 12
    for text, result in results.items():
        if "unroll" in text and "order=[0, 1]" in text:
            assert (
                result.error_no == autotvm.MeasureErrorNo.INSTANTIATION_ERROR
                and "not unrolled above 16" in result.costs[0]
            )
        elif "refuse=1" in text:
            assert result.error_no == autotvm.MeasureErrorNo.INSTANTIATION_ERROR and "not this one" in result.costs[0]
        else:
            assert result.error_no == 0


def test_wrong_numbers_are_found():
    task = autotvm.task.create("test/wrong", args=(64,), target=TARGET)
    got = []
    autotvm.GridSearchTuner(task).tune(2, option(), callbacks=[lambda t, i, r: got.extend(r)])
    assert [r.error_no for r in got] == [autotvm.MeasureErrorNo.NO_ERROR, autotvm.MeasureErrorNo.WRONG_ANSWER]
    assert "element 0 of output 1" in got[1].costs[0]


def test_history(tmp_path):
    log, best = str(tmp_path / "m.log"), str(tmp_path / "best.log")
    task = autotvm.task.create("test/matmul", args=(64, 48, 64, "float32"), target=TARGET)
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(6, option(), callbacks=[autotvm.callback.log_to_file(log)])
    autotvm.record.pick_best(log, best)
    (only,) = autotvm.record.load_from_file(best)
    assert only[0].config == tuner.best_config
    with autotvm.apply_history_best(log), tvm.target.Target(TARGET):
        s, args = matmul(64, 48, 64, "float32")
        f = tvm.build(s, args)
        inner = [int(i.dom.extent) for i in s[args[2]].leaf_iter_vars if i.var.name in ("ii", "ji")] or None
    a, b = (np.random.default_rng(0).random(shape).astype("float32") for shape in ((64, 48), (48, 64)))
    c = tvm.nd.empty((64, 64))
    f(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)
    if inner:
        assert inner == [tuner.best_config["tile_y"].size[1], tuner.best_config["tile_x"].size[1]]
    with autotvm.apply_history_best(log), tvm.target.Target(TARGET):
        s, _ = matmul(16, 16, 16, "float32")  # nothing is known of it: the first of each choice
    again = autotvm.tuner.XGBTuner(task)
    again.load_history(autotvm.record.load_from_file(log))
    assert again.visited == tuner.visited and again.best_flops == tuner.best_flops
    with open(log, "a", encoding="utf-8") as f:
        f.write("{broken\n")
    with pytest.raises(tvm.error.ArgumentError, match="line 7: a line is no record of AutoTVM"):
        autotvm.apply_history_best(log)


def test_a_line_as_tvm_writes_it():
    line = (
        '{"input": ["llvm -keys=cpu", "test/matmul", [64, 48, 64, "float32"], {}], "config": {"index": 5, '
        '"code_hash": null, "entity": [["tile_y", "sp", [-1, 32]], ["tile_x", "sp", [-1, 1]]]}, '
        '"result": [[0.001], 0, 0.5, 1600000000.0], '
        '"version": 0.2, "tvm_version": "0.18.0"}'
    )
    inp, result = autotvm.record.decode(line)
    assert inp.task.workload == ("test/matmul", 64, 48, 64, "float32") and result.costs == (0.001,)
    assert inp.config["tile_y"].size == [-1, 32]
    assert autotvm.record.decode(line.replace('"version": 0.2', '"version": 0.1')) is None


def test_refusals():
    with pytest.raises(tvm.error.ArgumentError, match="there is no template 'nothing'"):
        autotvm.task.create("nothing", (), TARGET)
    with pytest.raises(tvm.error.ArgumentError, match="already"):
        autotvm.template("test/matmul")(lambda: None)
    with pytest.raises(tvm.error.ArgumentError, match="body of an autotvm.template"):
        autotvm.get_config()
    with pytest.raises(tvm.error.UnsupportedError, match="this machine alone"):
        autotvm.RPCRunner("key")
