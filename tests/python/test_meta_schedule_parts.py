"""MetaSchedule with parts of one's own: rules, mutators, postprocessors, strategies, cost models, runners, callbacks
and databases that are written in Python, as its documentation writes them."""

import json
import re

import numpy as np
import pytest

import lathe as tvm
from lathe import meta_schedule as ms
from lathe import te, tir
from lathe._ffi import call
from lathe.meta_schedule.utils import derived_object
from lathe.script import tir as T

TARGET = f"{tvm.target.Target()} -num-cores=1"


@T.prim_func
def matmul(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 32), "float32"), C: T.Buffer((32, 32), "float32")):
    for i, j, k in T.grid(32, 32, 24):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


MOD = tvm.IRModule({"main": matmul})
FAST = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=5))


def check(sch):
    f = tvm.build(sch.mod, target=TARGET)
    a, b = (np.random.default_rng(0).random(s).astype("float32") for s in ((32, 24), (24, 32)))
    c = tvm.nd.empty((32, 32))
    f(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)


@derived_object
class SplitRows(ms.schedule_rule.PyScheduleRule):
    """Splits the rows, and gives the schedule as it was, too."""

    def _initialize_with_tune_context(self, context):
        self.seen = context.target

    def apply(self, sch, block):
        if sch.get(block).name_hint != "matmul":
            return [sch]
        new = sch.copy()
        i, j, k = new.get_loops(block)
        i0, i1 = new.split(i, new.sample_perfect_tile(i, n=2, max_innermost_factor=16))
        new.reorder(i0, k, i1, j)
        new.vectorize(j)
        return [new, sch]


@derived_object
class Halve(ms.mutator.PyMutator):
    """Makes every tile of two an even split, and counts how often it was asked."""

    asked = 0

    def apply(self, trace, _=None):
        Halve.asked += 1
        for inst, decision in trace.decisions.items():
            if inst.kind.name == "SamplePerfectTile" and [int(d) for d in decision] != [16, 2]:
                return trace.with_decision(inst, [16, 2], remove_postproc=False)
        return None


@derived_object
class NotTooWide(ms.postproc.PyPostproc):
    """Refuses tiles of more than eight rows."""

    def apply(self, sch):
        return all(int(d[-1]) <= 8 for d in sch.trace.decisions.values() if isinstance(d, list))


def test_rules_mutators_and_postprocessors(tmp_path):
    rule = SplitRows()
    space = ms.space_generator.PostOrderApply(
        sch_rules=[rule], postprocs=[NotTooWide()], mutator_probs={Halve(): 1.0}
    )
    context = ms.TuneContext(MOD, target=TARGET, space_generator=space, search_strategy="evolutionary")
    assert str(rule.seen) == str(context.target)
    spaces = context.generate_design_space()
    assert sorted(len(s.trace.decisions) for s in spaces) == [0, 1]
    Halve.asked = 0
    database = ms.tune_tir(
        MOD, TARGET, str(tmp_path), max_trials_global=4, num_trials_per_iter=2, space=space, runner=FAST
    )
    assert Halve.asked > 0
    traces = [r.trace for r in database.get_all_tuning_records()]
    assert 0 < len(traces) == len(set(traces)) <= 4
    assert any("decision=[16, 2]" in t for t in traces)  # the mutator's
    assert all(f", {wide}]" not in t for t in traces for wide in (16,))  # none that the postprocessor refuses
    best = database.get_top_k(database.commit_workload(MOD, TARGET), 1)[0]
    sch = tir.Schedule(MOD)
    sch._replay(best.trace)
    check(sch)


def test_built_in_rules_beside_ones_own():
    names = []

    @derived_object
    class Look(ms.schedule_rule.PyScheduleRule):
        def apply(self, sch, block):
            names.append(sch.get(block).name_hint)
            return [sch]

    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((16, 16), lambda i, j: te.sum(b[i, k] * b[k, j], axis=k), name="C")
    mod = tvm.IRModule({"main": te.create_prim_func([a, c])})
    rules = [ms.schedule_rule.AutoInline(), Look(), ms.schedule_rule.MultiLevelTiling()]
    context = ms.TuneContext(mod, target=TARGET, space_generator=ms.space_generator.PostOrderApply(sch_rules=rules))
    spaces = context.generate_design_space()
    assert names == ["C"]  # B is inlined by then
    assert len(spaces) > 1 and all(str(s.trace).count("sample_perfect_tile") == 3 for s in spaces)
    for word in ("SSSRRSRS", "SSRSRSRS"):
        with pytest.raises(tvm.error.UnsupportedError, match="structure is 'SSRSRS'"):
            ms.schedule_rule.MultiLevelTiling(structure=word)
    with pytest.raises(AttributeError, match="those for GPUs are not"):
        ms.schedule_rule.AutoBind()


def design_space(mod, *rules):
    generator = ms.space_generator.PostOrderApply(sch_rules=list(rules))
    return ms.TuneContext(mod, target=TARGET, space_generator=generator).generate_design_space()


def test_arguments_of_rules_are_honoured_or_refused():
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: te.exp(a[j, i]), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(b[i, k] * a[k, j], axis=k), name="C")
    mod = tvm.IRModule({"main": te.create_prim_func([a, c])})
    rule = ms.schedule_rule

    def inlined(**given):
        (one,) = design_space(mod, rule.AutoInline(**given))
        return "compute_inline" in str(one.trace)

    assert inlined() and inlined(disallow_if_then_else=True, require_injective=True, disallow_op=["tir.tanh"])
    assert not inlined(disallow_op=["tir.exp"]) and not inlined(require_ordered=True)

    # no innermost tile above four; the last of four, and of two for the sum
    for one in design_space(mod, rule.AutoInline(), rule.MultiLevelTiling(max_innermost_factor=4)):
        tiles = re.findall(r"max_innermost_factor=4, decision=\[([^]]*)\]", str(one.trace))
        assert len(tiles) == 3 and all(int(t.split(",")[-1]) <= 4 for t in tiles), str(one.trace)
        check_product(one, mod)

    def stored(req):
        reuse = rule.ReuseType(req=req, levels=[1], scope="global")
        found = design_space(mod, rule.AutoInline(), rule.MultiLevelTiling(reuse_write=reuse))
        return {"cache_write" in str(s.trace) for s in found}

    assert stored("must") == {True} and stored("no") == {False} and stored("may") == {True, False}
    flat = tvm.IRModule({"main": te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="D")])})
    more = rule.ParallelizeVectorizeUnroll(max_vectorize_extent=8, unroll_max_steps=[0, 512])
    spaces = [str(s.trace) for s in design_space(flat, more)]
    assert any("[0, 512]" in s for s in spaces) and not any("[0, 8, 16, 64]" in s for s in spaces)
    for text in spaces:
        lists = re.findall(r"sample_categorical\(candidates=\[([^]]*)\]", text)
        assert lists and all(int(w) <= 8 for found in lists for w in found.split(",") if found != "0, 512")
    for make in (
        lambda: rule.MultiLevelTiling(reuse_read=rule.ReuseType(req="must")),
        lambda: rule.MultiLevelTiling(tile_binds=["blockIdx.x"]),
        lambda: rule.AddRFactor(max_innermost_factor=8),
        lambda: rule.ParallelizeVectorizeUnroll(max_jobs_per_core=4),
        lambda: rule.AutoInline(into_producer=True),
    ):
        with pytest.raises(tvm.error.UnsupportedError, match=" is .* here, not "):
            make()


def check_product(sch, mod):
    """The schedule computes what the module does."""
    a = np.random.default_rng(2).random((64, 64)).astype("float32")
    outs = []
    for one in (sch.mod, mod):
        out = tvm.nd.empty((64, 64))
        tvm.build(one, target=TARGET)(tvm.nd.array(a), out)
        outs.append(out.numpy())
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-4)


def test_a_schedule_function(tmp_path):
    def schedule(sch):
        i, j, k = sch.get_loops(sch.get_block("matmul"))
        tile = sch.sample_perfect_tile(j, n=2, max_innermost_factor=32)
        _j0, j1 = sch.split(j, tile)
        sch.reorder(i, _j0, k, j1)
        sch.vectorize(j1)

    for space, strategy in ((schedule, "replay-trace"), (ms.space_generator.ScheduleFn(schedule), "replay-func")):
        database = ms.tune_tir(
            MOD, TARGET, str(tmp_path / strategy), 3, space=space, strategy=strategy, cost_model="random", runner=FAST
        )
        assert 2 <= len(database) <= 3
    check(ms.tir_integration.compile_tir(database, MOD, TARGET) or tir.Schedule(MOD))


def test_a_strategy_a_model_a_callback_and_a_database():
    told, fed = [], []

    @derived_object
    class Once(ms.search_strategy.PySearchStrategy):
        def _initialize_with_tune_context(self, context):
            self.ctx = context

        def pre_tuning(self, max_trials, num_trials_per_iter, design_spaces, database=None, cost_model=None):
            self.spaces, self.model = design_spaces, cost_model

        def generate_measure_candidates(self):
            if self.spaces is None:
                return None
            found = [ms.MeasureCandidate(s, self.ctx.args_info) for s in self.spaces[:2]]
            self.model.predict(self.ctx, found)
            self.spaces = None
            return found

        def notify_runner_results(self, measure_candidates, results):
            told.append(("results", [bool(r.run_secs) for r in results]))

    @derived_object
    class Model(ms.cost_model.PyCostModel):
        def update(self, context, candidates, results):
            fed.append(len(candidates))

        def predict(self, context, candidates):
            return np.zeros(len(candidates))

    @derived_object
    class Tell(ms.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler, task_id, measure_candidates, builder_results, runner_results):
            told.append(("callback", task_id, len(builder_results)))

    @derived_object
    class Mine(ms.database.PyDatabase):
        kept = []

        def commit_tuning_record(self, record):
            self.kept.append(record)

        def query_schedule(self, mod, target, workload_name=""):
            best = min(self.kept, key=lambda r: min(r.run_secs))
            sch = tir.Schedule(mod)
            sch._replay(best.trace)
            return sch

    class Loud(ms.runner.PyRunner):
        """Measures nothing: says what it was handed."""

        def run(self, runner_inputs):
            told.append(("run", [i.device_type for i in runner_inputs], runner_inputs[0].args_info[0].shape))
            local = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(1, 1, 1))
            return local.run(runner_inputs)

    mine = Mine()
    callbacks = [ms.measure_callback.AddToDatabase(), Tell(), *ms.measure_callback.MeasureCallback.create()[1:]]
    got = ms.tune_tir(
        MOD, TARGET, "unused", 4, strategy=Once(), cost_model=Model(), measure_callbacks=callbacks, database=mine,
        runner=Loud(),
    )  # fmt: skip
    assert got is mine and fed == [2] and len(mine.kept) == 2
    assert told == [("run", ["cpu", "cpu"], (32, 24)), ("results", [True, True]), ("callback", 0, 2)]
    check(ms.tir_integration.compile_tir(mine, MOD, TARGET))
    union = ms.database.OrderedUnionDatabase(ms.database.MemoryDatabase(), mine)
    check(union.query_schedule(MOD, TARGET))


def test_several_tasks(tmp_path):
    tasks = [ms.TuneContext(MOD, target=TARGET, task_name="a"), ms.TuneContext(MOD, target=TARGET, task_name="b")]
    for scheduler in ("round-robin", "gradient"):
        database = ms.tune_tasks(
            tasks=[t.clone() for t in tasks], task_weights=[1.0, 3.0], work_dir=str(tmp_path / scheduler),
            max_trials_global=2, num_trials_per_iter=1, runner=FAST, task_scheduler=scheduler,
        )  # fmt: skip
        assert len(tvm.tuning.Database(database.path).records()) == 2
    with pytest.raises(tvm.error.ArgumentError, match="2 tasks have 1 weights"):
        ms.tune_tasks(tasks=tasks, task_weights=[1.0], work_dir=str(tmp_path), max_trials_global=1)


def test_what_goes_wrong_is_a_result(tmp_path):
    def refuse(_sch):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        ms.tune_tir(MOD, TARGET, str(tmp_path), 1, space=refuse)
    built = ms.builder.LocalBuilder().build([ms.builder.BuilderInput(MOD, tvm.target.Target("cuda"))])
    assert built[0].artifact_path is None and built[0].error_msg.startswith("LocalBuilder: ")
    gone = ms.runner.LocalRunner().run([ms.runner.RunnerInput("/nowhere.so", "cpu", [])])[0].result()
    assert gone.run_secs is None and "nowhere" in gone.error_msg
    with pytest.raises(tvm.error.UnsupportedError, match="lathe tune --workers"):
        ms.runner.RPCRunner()
    with pytest.raises(tvm.error.ArgumentError, match="no cost model 'oracle'; there are xgb, random"):
        ms.tune_tir(MOD, TARGET, str(tmp_path), 1, cost_model="oracle")
    from lathe import relay

    x = relay.var("x", shape=(1, 8))
    net = tvm.IRModule.from_expr(relay.nn.dense(x, relay.const(np.ones((4, 8), "float32"))))
    with pytest.raises(tvm.error.UnsupportedError, match="tune_relay: space is 'post-order-apply'.*tune_tir"):
        ms.relay_integration.tune_relay(net, {}, TARGET, str(tmp_path), 1, space=refuse)


def test_features():
    """Numbers that the loops have by definition."""
    rows = call("tune_features", matmul)
    assert len(rows) == 2 and all(len(r) == 24 for r in rows)  # the first value, the sum
    runs = sorted(round(2 ** r[0]) - 1 for r in rows)
    assert runs == [32 * 32, 32 * 32 * 24]
    whole = max(rows)
    assert round(2 ** whole[1]) - 1 == 2 * 32 * 32 * 24  # a product and a sum for each step
    sch = tir.Schedule(MOD)
    i, j, k = sch.get_loops(sch.get_block("matmul"))
    sch.parallel(i)
    sch.reorder(i, k, j)
    sch.vectorize(j)
    row = max(call("tune_features", sch.mod["main"]))
    assert [round(2 ** row[n]) - 1 for n in (6, 7, 9)] == [32, 32, 32]  # threads, lanes, the innermost loop
    # along the vector lie C (read and written) and B; A stays
    assert [round(2 ** row[n]) - 1 for n in (14, 15, 16)] == [1, 3, 0]
    assert round(2 ** row[19]) - 1 == 4 * (32 + 32 + 32 + 1)  # bytes that the innermost loop touches
    extractor = ms.feature_extractor.PerStoreFeature()
    (array,) = extractor.extract_from(None, [ms.MeasureCandidate(sch, [])])
    assert array.numpy().shape == (2, 24)


def test_the_model_ranks():
    """Of a law that it does not know it finds the order of what it has not seen."""
    rng = np.random.default_rng(0)
    rows = rng.random((120, 6)) * 4
    seconds = np.exp(rows[:, 0] * 0.8 - rows[:, 1] * 0.5 + 0.2 * rows[:, 2] ** 2 - 8)
    said = call("tune_model", rows[:90].tolist(), seconds[:90].tolist(), rows[90:].tolist())
    ranks = [np.argsort(np.argsort(x)) for x in (said, seconds[90:])]
    assert np.corrcoef(*ranks)[0, 1] > 0.9
    assert call("tune_model", [], [], [[1.0, 2.0]]) == [1.0]
    with pytest.raises(tvm.error.ArgumentError, match="a row has 1 numbers, others 2"):
        call("tune_model", [[1.0, 2.0]], [1.0], [[1.0]])


def test_records_of_tvm(tmp_path):
    database = ms.tune_tir(MOD, TARGET, str(tmp_path / "a"), 3)
    path = tmp_path / "database_tuning_record.json"
    n = database.export_tvm(path, MOD, TARGET)
    assert n == len(database) > 0
    index, (trace, seconds, *_) = json.loads(path.read_text().splitlines()[0])
    assert index == 0 and trace[0][0][0] == "GetBlock" and seconds
    other = ms.database.JSONDatabase(work_dir=str(tmp_path / "b"))
    assert other.import_tvm(path, MOD, TARGET) == n
    assert {r.trace for r in other.get_all_tuning_records()} == {r.trace for r in database.get_all_tuning_records()}
    assert ms.tir_integration.compile_tir(other, MOD, TARGET) is None  # nobody measured them beside the program here
    path.write_text("[0, 7]\n")
    with pytest.raises(tvm.error.ArgumentError, match="line 1 is no record for this program"):
        other.import_tvm(path, MOD, TARGET)


def test_a_function_as_database():
    def known(sch):
        i, _, _ = sch.get_loops(sch.get_block("matmul"))
        sch.parallel(i)
        return True

    sch = ms.database.ScheduleFnDatabase(known).query_schedule(MOD, tvm.target.Target(TARGET))
    assert "parallel" in str(sch.trace)
    check(sch)
    assert ms.database.ScheduleFnDatabase(lambda sch: False).query_schedule(MOD, tvm.target.Target(TARGET)) is None


def test_a_place_is_drawn():
    a = te.placeholder((24, 16), name="A")
    b = te.compute((24, 16), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((24, 16), lambda i, j: b[i, j] * 2.0, name="C")
    func = te.create_prim_func([a, c])
    places = set()
    for seed in range(1, 9):
        sch = tir.Schedule(func, seed=seed)
        (made,) = ms.schedule_rule.RandomComputeLocation().apply(sch, sch.get_block("B"))
        places.add(re.search(r"decision=(-?\d+)", str(made.trace)).group(1))
        x, out = np.random.default_rng(seed).random((24, 16)).astype("float32"), tvm.nd.empty((24, 16))
        tvm.build(made.mod, target=TARGET)(tvm.nd.array(x), out)
        np.testing.assert_allclose(out.numpy(), (x + 1) * 2, rtol=1e-6)
        assert ms.schedule_rule.RandomComputeLocation().apply(sch, sch.get_block("C")) == [sch]
    assert len(places) > 1
