"""TVM's lessons on tuning, written from its public documentation with the import lines changed: AutoTVM for a network,
Ansor for an operator and a network, MetaSchedule for loop programs with rules and mutators of one's own."""

import numpy as np
import pytest

import lathe as tvm
from lathe import auto_scheduler, autotvm, relay, te, topi
from lathe.autotvm.graph_tuner import DPTuner, PBQPTuner
from lathe.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner
from lathe.contrib import graph_executor

TARGET = f"{tvm.target.Target()} -num-cores=1"
SHAPE = (1, 8, 12, 12)


def small_network():
    """Two convolutions, their weights as parameters."""
    rng = np.random.default_rng(0)
    x = relay.var("data", shape=SHAPE)
    y = relay.nn.relu(relay.nn.conv2d(x, relay.var("w0", shape=(16, 8, 3, 3)), padding=(1, 1)))
    y = relay.nn.conv2d(y, relay.var("w1", shape=(8, 16, 1, 1)))
    params = {
        "w0": tvm.nd.array(rng.standard_normal((16, 8, 3, 3)).astype("float32")),
        "w1": tvm.nd.array(rng.standard_normal((8, 16, 1, 1)).astype("float32")),
    }
    return tvm.IRModule.from_expr(y), params


def run(lib):
    g = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    g.set_input("data", np.random.default_rng(1).standard_normal(SHAPE).astype("float32"))
    g.run()
    return g.get_output(0).numpy()


def untuned(mod, params):
    with tvm.transform.PassContext(opt_level=3):
        return run(relay.build(mod, target=TARGET, params=params))


# ---- AutoTVM


def tune_kernels(tasks, measure_option, tuner, early_stopping, log_filename, n_trial):
    for i, task in enumerate(tasks):
        prefix = f"[Task {i + 1:2d}/{len(tasks):2d}] "
        if tuner == "xgb":
            tuner_obj = XGBTuner(task, loss_type="reg")
        elif tuner == "ga":
            tuner_obj = GATuner(task, pop_size=50)
        elif tuner == "random":
            tuner_obj = RandomTuner(task)
        else:
            tuner_obj = GridSearchTuner(task)
        n = min(n_trial, len(task.config_space))
        tuner_obj.tune(
            n_trial=n,
            early_stopping=early_stopping,
            measure_option=measure_option,
            callbacks=[
                autotvm.callback.progress_bar(n, prefix=prefix),
                autotvm.callback.log_to_file(log_filename),
            ],
        )


@pytest.mark.parametrize("tuner, graph_tuner", [("gridsearch", DPTuner), ("xgb", PBQPTuner)])
def test_autotvm_for_a_network(tmp_path, tuner, graph_tuner):
    mod, params = small_network()
    log, graph_log = str(tmp_path / "k.log"), str(tmp_path / "graph.log")
    tasks = autotvm.task.extract_from_program(
        mod["main"], target=TARGET, params=params, ops=(relay.op.get("nn.conv2d"),)
    )
    assert len(tasks) == 2 and all(t.name == "nn.conv2d" and t.flop > 0 for t in tasks)
    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(number=1, repeat=1, min_repeat_ms=10)
    )
    trials = 10 if tuner == "xgb" else 4
    tune_kernels(tasks[:1] if tuner == "xgb" else tasks, option, tuner, None, log, trials)
    pairs = list(autotvm.record.load_from_file(log))
    assert len(pairs) == trials * (1 if tuner == "xgb" else 2)
    for task in {i.task.workload: i for i, _r in pairs}.values():  # the untuned plan is among them
        base = task.config["base"].val
        assert any(i.config["plan"].val == base for i, _r in pairs if i.task.workload == task.task.workload)
    executor = graph_tuner(mod["main"], {"data": SHAPE}, log, [relay.op.get("nn.conv2d")], TARGET)
    executor.benchmark_layout_transform(min_exec_num=20)
    executor.run()
    executor.write_opt_sch2record_file(graph_log)
    chosen = dict(executor.get_optimal_records())
    assert chosen and all(plan in {i.config["plan"].val for i, _r in pairs} for plan in chosen.values())
    want = untuned(mod, params)
    for context in (autotvm.apply_history_best(log), autotvm.apply_graph_best(graph_log)):
        with context, tvm.transform.PassContext(opt_level=3):
            np.testing.assert_allclose(run(relay.build(mod, target=TARGET, params=params)), want, rtol=1e-3, atol=1e-3)
    with pytest.raises(tvm.error.ArgumentError, match="no kernel of these operators"):
        graph_tuner(mod["main"], {"data": SHAPE}, log, ["nn.dense"], TARGET)


def test_a_log_changes_a_network_only_where_it_won(tmp_path):
    mod, params = small_network()
    (task, *_) = autotvm.task.extract_from_program(mod["main"], target=TARGET, params=params)
    base = task.kernel.base
    layout = [part for part in base.split("{")[1].split(", ") if "block" in part]
    other = next(
        p for p, _ in task.kernel.plans
        if p != base and p.split("{")[0] == base.split("{")[0] and all(x in p for x in layout)
    )  # fmt: skip

    def built(seconds):
        log = tmp_path / "made.log"
        with open(log, "w", encoding="utf-8") as f:
            for index in range(len(task.config_space)):
                config = task.config_space.get(index)
                plan = config["plan"].val
                if plan in (base, other):
                    cost = 1e-3 if plan == base else seconds
                    result = autotvm.MeasureResult((cost,), 0, 0.1, 1600000000.0)
                    f.write(autotvm.record.encode(autotvm.MeasureInput(task.target, task, config), result) + "\n")
        with autotvm.apply_history_best(str(log)):
            with tvm.transform.PassContext(opt_level=3, config={"lathe.plans.log": True}):
                lib = relay.build(mod, target=TARGET, params=params)
        lines = tvm._ffi.call("compiled_plans_text", lib._compiled).splitlines()
        return [line.split(" ", 2)[2] for line in lines if line.startswith("* ")]

    assert base in built(1.2e-3) and other not in built(1.2e-3)
    assert other in built(0.5e-3)
    lines = autotvm.record.ApplyHistoryBest(str(tmp_path / "made.log")).lines()
    assert lines == f"{task.args[0]} {base} => {other}\n"
    built(0.995e-3)
    assert autotvm.record.ApplyHistoryBest(str(tmp_path / "made.log")).lines() == ""


# ---- Ansor


@auto_scheduler.register_workload
def conv2d_layer(n, h, w, co, ci, kh, kw, stride, padding):
    data = te.placeholder((n, ci, h, w), name="data")
    kernel = te.placeholder((co, ci, kh, kw), name="kernel")
    bias = te.placeholder((1, co, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    return [data, kernel, bias, topi.nn.relu(topi.add(conv, bias))]


def test_ansor_for_an_operator(tmp_path):
    log = str(tmp_path / "conv2d.json")
    task = auto_scheduler.SearchTask(
        func=conv2d_layer, args=(1, 8, 8, 8, 4, 3, 3, (1, 1), (1, 1)), target=tvm.target.Target(TARGET)
    )
    assert "conv" in str(task.compute_dag)
    context = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=300)
    option = auto_scheduler.TuningOptions(
        num_measure_trials=3, runner=context.runner, measure_callbacks=[auto_scheduler.RecordToFile(log)], verbose=2
    )
    task.tune(option)
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.XGBModel(), init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)]
    )
    task.tune(option, search_policy=policy)  # goes on from the log
    assert len(tvm.tuning.Database(log).records()) == 6
    sch, args = task.apply_best(log)
    func = tvm.build(sch, args, TARGET)
    rng = np.random.default_rng(0)
    data, kernel, bias = (rng.standard_normal(s).astype("float32") for s in ((1, 4, 8, 8), (8, 4, 3, 3), (1, 8, 1, 1)))
    out = tvm.nd.empty((1, 8, 8, 8))
    func(tvm.nd.array(data), tvm.nd.array(kernel), tvm.nd.array(bias), out)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, y : y + 8, x : x + 8], kernel[:, :, y, x])
        for y in range(3) for x in range(3)
    )  # fmt: skip
    np.testing.assert_allclose(out.numpy(), np.maximum(want + bias, 0), rtol=1e-3, atol=1e-4)
    assert "sch.get_block" in task.print_best(log)
    with pytest.raises(tvm.error.UnsupportedError, match="meta_schedule.tune_tir takes models"):
        auto_scheduler.SketchPolicy(task, object())
