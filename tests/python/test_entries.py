"""Models with several entries, and objects that live between calls: from Python, the command line and C."""

import os
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.runtime.model import Executor, Model

BUILD = os.environ.get("LATHE_LIBRARY_PATH", "build")
LATHE = os.path.join(BUILD, "lathe")
TEXT = """
type State { S(Tensor[(4), float32], float32) }
def @begin(%x: Tensor[(4), float32]) -> State { S(%x, 0f) }
def @step(%state: State, %d: Tensor[(4), float32]) {
  match (%state) { S(%s, %n) => (S(add(%s, %d), add(%n, 1f)), add(%s, %d), add(%n, 1f)) }
}
def @double(%x: Tensor[(4), float32]) { multiply(%x, 2f) }
def @unused(%x: Tensor[(4), float32]) { negative(%x) }
"""
ENTRIES = ["begin", "step", "double"]
X, D = np.arange(4, dtype="float32"), np.full(4, 10, "float32")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    lib = relay.build(relay.parse(TEXT), target="llvm", entries=ENTRIES)
    path = tmp_path_factory.mktemp("entries") / "m.so"
    lib.export_library(str(path))
    return lib, path


def test_python(library):
    lib, path = library
    for begin in (
        graph_executor.GraphModule(lib["default"](lathe.cpu(0))),
        graph_executor.GraphModule(Executor(Model.load(path))),
    ):
        begin.run(x=X)
        state, step, double = begin.get_output(0), begin.entry("step"), begin.entry("double")
        assert repr(state) == "State(State)"
        for i in range(3):
            step.run(state=state, d=D)
            state = step.get_output(0)
            np.testing.assert_array_equal(step.get_output(1).numpy(), X + 10 * (i + 1))
            double.run(x=X)             # between them, on the same executor
            np.testing.assert_array_equal(double.get_output(0).numpy(), 2 * X)
            assert step.get_output(2).numpy() == i + 1      # an entry's outputs stay until its own next run
        assert [p.dtype for p in step._executor.inputs] == ["object", "float32"]


def test_refused(library):
    lib, path = library
    begin = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    other = graph_executor.GraphModule(Executor(Model.load(path)))
    assert Model.load(path).entries == ENTRIES
    with pytest.raises(lathe.error.NotFoundError, match="the model has no entry 'unused'; it has begin, step, double"):
        begin.entry("unused")
    other.run(x=X)
    with pytest.raises(lathe.error.TypeError, match="input 'state' is State: an object that the model gave is wanted"):
        begin.entry("step").set_input("state", 1)
    with pytest.raises(lathe.error.ArgumentError, match="data of another executor"):
        begin.entry("step").set_input("state", other.get_output(0))
    with pytest.raises(lathe.error.ArgumentError, match="no graph function @absent to be an entry"):
        relay.build(relay.parse(TEXT), entries=["absent"])


def test_command_line(library, tmp_path):
    text, out = tmp_path / "m.relay", tmp_path / "m.so"
    text.write_text(TEXT)
    subprocess.run([LATHE, "compile", text, "-o", out, "--entry", "begin", "--entry", "step"], check=True)
    for model in (out, text):       # compiled, or compiled on the way
        shown = subprocess.run(
            [LATHE, "run", model, "--entry", "begin", "--entry", "step", "--entry", "step", "--input", "ones"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert "output_1: float32 (4)\n  min 3, max 3" in shown and "output_2: float32 ()\n  min 2, max 2" in shown
    shown = subprocess.run([LATHE, "inspect", out], check=True, capture_output=True, text=True).stdout
    assert "entry step:" in shown and "state                    State" in shown
    for args, why in ((["--entry", "step"], "input 'state' is an object (State): run an entry that gives it first"),
                      (["--entry", "stepp"], "the model has no entry 'stepp'; it has 'begin', 'step'")):
        refused = subprocess.run([LATHE, "run", out, "--input", "ones", *args], capture_output=True, text=True)
        assert refused.returncode == 1 and why in refused.stderr


C = r"""
#include <stdio.h>
#include "m.h"
int main(void)
{
  LatheRtModel *model;
  LatheRtExecutor *x;
  LatheRtObject *state;
  LatheRtError err;
  const float a[4] = {0, 1, 2, 3}, d[4] = {10, 10, 10, 10};
  float twice[m_double_output_0_elements];
  int64_t n = 4;
  LatheRtTensor t = {(void *)a, {LATHE_RT_CPU, 0}, 1, {2, 32, 1}, &n, NULL, 0}, u = t;
  const LatheRtTensor *y;
  u.data = (void *)d;
  if (m_load(&model, &err) || lathe_rt_executor_new(model, &x, &err)) return puts(err.text), 1;
  if (lathe_rt_set_input(x, 0, &t, &err) || lathe_rt_run(x, &err) || lathe_rt_get_output_object(x, 0, &state, &err))
    return puts(err.text), 1;
  if (lathe_rt_executor_select(x, 1, &err) || lathe_rt_set_input_object(x, 0, state, &err) ||
      lathe_rt_set_input(x, 1, &u, &err) || lathe_rt_run(x, &err) || lathe_rt_get_output(x, 1, &y, &err))
    return puts(err.text), 1;
  printf("%g %g\n", ((float *)y->data)[0], ((float *)y->data)[3]);
  if (m_double_run(x, a, twice, &err)) return puts(err.text), 1;
  printf("%g\n", twice[3]);
  lathe_rt_executor_free(x);
  lathe_rt_model_free(model);
  return 0;
}
"""


def test_linked_into_c(library, tmp_path):
    lib, _ = library
    lib.export_library(str(tmp_path / "m.o"))
    (tmp_path / "p.c").write_text(C)
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    build = os.path.abspath(BUILD)
    subprocess.run(
        [
            "cc",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{here}/include",
            "p.c",
            "m.o",
            f"-L{build}",
            "-llathe_rt",
            f"-Wl,-rpath,{build}",
            "-lm",
            "-o",
            "p",
        ],
        check=True,
        cwd=tmp_path,
    )
    assert subprocess.run(["./p"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout == "10 13\n6\n"
