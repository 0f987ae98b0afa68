"""Programs that call functions by name: tensors that they fill, objects that they make and that live between calls."""

import gc
import os
import subprocess

import numpy as np
import pytest

import lathe
from lathe import error, relay
from lathe.contrib import graph_executor
from lathe.runtime.packed import _objects

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("LATHE_LIBRARY_PATH", "build"))
TEXT = """
extern type Cache
def @begin(%x: Tensor[(n, 4), float32]) -> Cache { call_packed(%x, func="test.cache_new", type="Cache") }
def @step(%c: Cache, %x: Tensor[(n, 4), float32]) {
  let %d = call_packed(%c, nn.relu(%x), func="test.cache_add", type="Cache");
  (%d, add(call_dps_packed(%d, %x, func="test.cache_sum", shape=[n, 4], dtype="float32"), 1f))
}
"""
ENTRIES = ["begin", "step"]


class Cache:
    def __init__(self, rows):
        self.rows = rows


@pytest.fixture
def functions():
    made = {
        "test.cache_new": lambda x: Cache([x.numpy().copy()]),
        "test.cache_add": lambda c, x: Cache([*c.rows, x.numpy().copy()]),
        "test.cache_sum": lambda c, x, out: out.copyfrom(sum(c.rows) + x.numpy()),
    }
    for name, f in made.items():
        lathe.register_func(name, f)
    yield
    for name in made:
        lathe.runtime.remove_global_func(name)


def test_text_there_and_back():
    mod = relay.parse(TEXT)
    assert "extern type Cache\n" in mod.astext()
    again = relay.parse(mod.astext())
    assert lathe.ir.structural_equal(mod, again)


def test_objects_between_calls(functions):
    lib = relay.build(relay.parse(TEXT), target="llvm", entries=ENTRIES)
    begin = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    step = begin.entry("step")
    held = len(_objects)
    for n in (3, 1):
        x = np.arange(4 * n, dtype="float32").reshape(n, 4) - 5
        begin.run(x=x)
        cache, want = begin.get_output(0), x
        for k in range(3):
            step.run(c=cache, x=x * k)
            want = want + np.maximum(x * k, 0)
            cache = step.get_output(0)
            np.testing.assert_allclose(step.get_output(1).numpy(), want + x * k + 1, rtol=1e-6)
    assert len(_objects) > held
    del begin, step, cache
    gc.collect()
    assert len(_objects) == held  # each object has ended


def test_built_from_python(functions):
    lathe.register_func("test.reversed", lambda a, out: out.copyfrom(a.numpy()[::-1].copy()))
    x = relay.var("x", shape=(5,))
    y = relay.call_dps_packed(relay.exp(x), func="test.reversed", shape=(5,), dtype="float32")
    f = relay.Function([x], relay.multiply(y, relay.const(2.0)))
    given = np.linspace(-1, 1, 5).astype("float32")
    try:
        got = relay.create_executor("vm", lathe.IRModule.from_expr(f)).evaluate()(given).numpy()
    finally:
        lathe.runtime.remove_global_func("test.reversed")
    np.testing.assert_allclose(got, 2 * np.exp(given[::-1]), rtol=1e-5)


def run_main(text, **inputs):
    lib = relay.build(relay.parse(text), target="llvm")
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.run(**inputs)
    return m.get_output(0).numpy()


def test_sentences(functions):
    call = 'def @main(%%x: Tensor[(2), float32]) { call_dps_packed(%%x, func="%s", shape=[2]) }'
    with pytest.raises(error.NotFoundError, match="it calls 'test.absent', which is not registered"):
        run_main(call % "test.absent", x=np.zeros(2, "float32"))
    lathe.register_func("test.raises", lambda x, out: 1 // 0)
    try:
        with pytest.raises(ZeroDivisionError):
            run_main(call % "test.raises", x=np.zeros(2, "float32"))
    finally:
        lathe.runtime.remove_global_func("test.raises")
    for text, why in (
        ("call_dps_packed(%x, shape=[2])", "func"),
        ('call_dps_packed((%x, %x), func="f", shape=[2])', "tensors and objects can be handed over"),
        ('call_packed(%x, func="f", type="None")', "there is no data type 'None'; 'extern type' declares one"),
        ('call_packed(%x, func="f", type="Made")', "'Made' has constructors or parameters"),
    ):
        with pytest.raises(error.LatheError, match=why):
            relay.parse("type Made { One(float32) }\ndef @main(%x: Tensor[(2), float32]) { " + text + " }")
    with pytest.raises(error.LatheError, match="the interpreter has no packed functions"):
        relay.create_executor("debug", relay.parse(call % "f")).evaluate()(np.zeros(2, "float32"))


C = r"""
#include <stdio.h>
#include <stdlib.h>
#include "m.h"

typedef struct Cache {
  float sum[4];
} Cache;
static int live;

static void drop(void *data)
{
  free(data);
  live--;
}

/* What was there, if something was, and the first row of the tensor. */
static int32_t make(const Cache *from, const LatheRtTensor *t, LatheRtPackedArg *result)
{
  LatheRtError err;
  Cache *c = calloc(1, sizeof *c);
  if (from) *c = *from;
  for (int i = 0; i < 4; i++) c->sum[i] += ((const float *)t->data)[i];
  live++;
  result->tag = LATHE_RT_ARG_OBJECT;
  return lathe_rt_object_new("cache", c, drop, &result->u.o, &err);
}
static int32_t cache_new(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  return user || n != 1 ? 1 : make(NULL, arg[0].u.t, result);
}
static int32_t cache_add(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  return user || n != 2 ? 1 : make(lathe_rt_object_data(arg[0].u.o, "cache"), arg[1].u.t, result);
}
static int32_t cache_sum(void *user, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result)
{
  const Cache *c = n == 3 ? lathe_rt_object_data(arg[0].u.o, "cache") : NULL;
  if (!c || user || result) return 1;
  for (int i = 0; i < 4; i++) ((float *)arg[2].u.t->data)[i] = c->sum[i] + ((const float *)arg[1].u.t->data)[i];
  return 0;
}

int main(void)
{
  LatheRtModel *model;
  LatheRtExecutor *x;
  LatheRtObject *cache;
  LatheRtError err;
  float a[4] = {0, 1, 2, -3};
  int64_t shape[2] = {1, 4};
  LatheRtTensor t = {a, {LATHE_RT_CPU, 0}, 2, {2, 32, 1}, shape, NULL, 0};
  const LatheRtTensor *y;
  if (lathe_rt_register("test.cache_new", cache_new, NULL, &err) ||
      lathe_rt_register("test.cache_add", cache_add, NULL, &err) ||
      lathe_rt_register("test.cache_sum", cache_sum, NULL, &err) || m_load(&model, &err) ||
      lathe_rt_executor_new(model, &x, &err) || lathe_rt_set_input(x, 0, &t, &err) || lathe_rt_run(x, &err) ||
      lathe_rt_get_output_object(x, 0, &cache, &err) || lathe_rt_executor_select(x, 1, &err) ||
      lathe_rt_set_input(x, 1, &t, &err))
    return puts(err.text), 1;
  for (int i = 0; i < 2; i++)
    if (lathe_rt_set_input_object(x, 0, cache, &err) || lathe_rt_run(x, &err) ||
        lathe_rt_get_output_object(x, 0, &cache, &err) || lathe_rt_get_output(x, 1, &y, &err))
      return puts(err.text), 1;
  printf("%s: %g %g %g %g\n", lathe_rt_object_kind(cache), ((float *)y->data)[0], ((float *)y->data)[1],
         ((float *)y->data)[2], ((float *)y->data)[3]);
  lathe_rt_executor_free(x);
  lathe_rt_model_free(model);
  printf("%d live\n", live);
  return 0;
}
"""


def test_from_c(tmp_path):
    """The same model linked into a program whose own functions it calls."""
    lib = relay.build(relay.parse(TEXT), target="llvm", entries=ENTRIES)
    lib.export_library(str(tmp_path / "m.o"))
    (tmp_path / "p.c").write_text(C)
    command = ["cc", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "p.c", "m.o", f"-L{BUILD}", "-llathe_rt"]
    subprocess.run([*command, f"-Wl,-rpath,{BUILD}", "-lm", "-o", "p"], check=True, cwd=tmp_path)
    done = subprocess.run(["./p"], capture_output=True, text=True, cwd=tmp_path)
    # 0 1 2 -3, twice 0 1 2 0 added, then the row once more and 1
    assert (done.returncode, done.stdout) == (0, "cache: 1 5 9 -5\n0 live\n")
