"""Logs of Ansor: lines as TVM's auto_scheduler writes them, their steps carried out, and what they compute beside
numpy."""

import json

import numpy as np
import pytest

import lathe as tvm
from lathe import auto_scheduler, te


@auto_scheduler.register_workload("ansor_matmul_add", override=True)
def matmul_add(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    c, r = te.placeholder((n, m), name="C"), te.reduce_axis((0, k), name="k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="matmul")
    return [a, b, c, te.compute((n, m), lambda i, j: product[i, j] + c[i, j], name="out")]


KEY = auto_scheduler.make_workload_key("ansor_matmul_add", (32, 48, 16))
# stages: 0 A, 1 B, 2 matmul, 3 C, 4 out
TILED = [
    ["SP", 2, 0, 32, [2, 4, 1], 1],
    ["SP", 2, 4, 48, [1, 2, 8], 1],
    ["SP", 2, 8, 16, [4], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FSP", 4, 0, 0, 2],
    ["FSP", 4, 3, 1, 2],
    ["RE", 4, [0, 3, 1, 4, 2, 5]],
    ["CA", 2, 4, 3],
    ["FU", 4, [0, 1]],
    ["AN", 4, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$16"],
    ["AN", 2, 9, 2],
]
CACHED = [
    ["CHW", 4, "local"],
    ["SP", 5, 0, 32, [8], 1],
    ["CA", 4, 5, 0],
    ["CR", 2],
    ["AN", 5, 0, 3],
]

PARTS = [["SP", 2, 2, 16, [4], 1], ["RF", 2, 3, 2], ["SP", 2, 0, 32, [8], 1], ["AN", 2, 0, 3]]


def line(steps, seconds, key=KEY, error=0):
    hardware = [2, 16, 64, 0, 0, 0, 0, 0]
    entry = {"i": [[key, "llvm -keys=cpu", hardware, "", 0, []], [[], steps]], "r": [[seconds], error, 0.5, 1700000000]}
    return json.dumps({**entry, "v": "v0.6"}) + "\n"


def check(sch, args):
    f = tvm.build(sch, args, target="llvm -mcpu=native")
    rng = np.random.default_rng(1)
    a, b, c = (rng.random(s).astype("float32") for s in [(32, 16), (16, 48), (32, 48)])
    out = tvm.nd.empty((32, 48))
    f(tvm.nd.array(a), tvm.nd.array(b), tvm.nd.array(c), out)
    np.testing.assert_allclose(out.numpy(), a @ b + c, rtol=1e-5)


def test_the_best_of_a_log(tmp_path):
    task = auto_scheduler.SearchTask(func="ansor_matmul_add", args=(32, 48, 16), target="llvm -mcpu=native")
    log = tmp_path / "log.json"
    good = line(CACHED, 2e-3) + line(TILED, 1e-3) + line(PARTS, 3e-3)
    log.write_text(good + line([], 1, error=4) + line([], 1e-9, key="[1]"))
    inp, res = auto_scheduler.load_best_record(str(log), KEY)
    assert inp.state.transform_steps == TILED and res.costs == [1e-3]
    sch, args = task.apply_best(str(log))
    text = str(tvm.lower(sch, args))
    assert "T.parallel" in text and "T.Ramp" in text
    check(sch, args)
    for record, _ in auto_scheduler.load_records(str(log)):
        if record.workload_key == KEY:
            check(*task.compute_dag.apply_steps_from_state(record.state))


def test_records_go_out_as_they_came_in(tmp_path):
    text = line(TILED, 1e-3)
    record = auto_scheduler.load_record_from_string(text)
    assert json.loads(auto_scheduler.dump_record_to_string(*record)) == json.loads(text)
    log = tmp_path / "out.json"
    pairs = [auto_scheduler.load_record_from_string(text)] * 2
    auto_scheduler.save_records(str(log), *zip(*pairs))
    assert len(list(auto_scheduler.RecordReader(str(log)))) == 2
    inputs, results = auto_scheduler.RecordReader(str(log)).read_lines(1, 1)
    assert [i.state.transform_steps for i in inputs] == [TILED] and results[0].costs == [1e-3]
    assert json.loads(KEY) == ["ansor_matmul_add", 32, 48, 16]


@pytest.mark.parametrize(
    "steps, sentence",
    [
        ([["SP", 2, 0, 31, [2], 1]], "a loop of 31 steps, which has 32 here"),
        ([["AN", 4, 0, 6]], "annotation 6 is for GPUs"),
        ([["XX", 1]], "'XX' of Ansor's has no counterpart"),
        ([["AN", 9, 0, 3]], "does not fit the computation"),
    ],
)
def test_what_does_not_carry_over(steps, sentence, tmp_path):
    task = auto_scheduler.SearchTask(func="ansor_matmul_add", args=(32, 48, 16), target="llvm -mcpu=native")
    log = tmp_path / "log.json"
    log.write_text(line(steps, 1e-3))
    with pytest.raises(tvm.error.LatheError, match=sentence):
        task.apply_best(str(log))


def test_bad_lines_and_other_workloads(tmp_path):
    task = auto_scheduler.SearchTask(func="ansor_matmul_add", args=(32, 48, 16), target="llvm -mcpu=native")
    log = tmp_path / "log.json"
    log.write_text(line(TILED, 1e-3) + '{"i": 3}\n')
    with pytest.raises(tvm.error.LatheError, match="line 2: this is no record"):
        task.apply_best(str(log))
    log.write_text(line(TILED, 1e-3, key="[2]"))
    with pytest.raises(tvm.error.LatheError, match="has no record of the workload"):
        task.apply_best(str(log))
