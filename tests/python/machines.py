"""Other machines that models are compiled for here and run by an emulator, by node or by a browser: how each is run.

tests/python/test_end_to_end.py takes one by LATHE_MACHINE=NAME."""

import base64
import functools
import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
import pytest

import chromium
from lathe import relay
from lathe.relay.backend import Executor

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Triple, options of the target, emulator.
MACHINES = {
    "x86-64": ("x86_64-linux-gnu", "", ["qemu-x86_64"]),
    "aarch64": ("aarch64-linux-gnu", "", ["qemu-aarch64"]),
    "armv7": ("arm-linux-gnueabihf", "-mcpu=cortex-a9", ["qemu-arm"]),
    "armv7-neon": ("arm-linux-gnueabihf", "-mcpu=cortex-a9 -mattr=+neon", ["qemu-arm", "-cpu", "cortex-a15"]),
    "riscv64": ("riscv64-linux-gnu", "", ["qemu-riscv64"]),
    "riscv64-v": ("riscv64-linux-gnu", "-mattr=+v", ["qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0"]),
}

# What the kernel says of RISC-V's features, a bit for each letter: of vectors qemu 7.2 keeps it for itself.
BITS = sum(1 << ord(letter) - ord("a") for letter in "imafdcv")
HAS_V = f"unsigned long getauxval(unsigned long what) {{ return what == 16 ? {BITS}ul : 0; }}\n"

# program MODEL OUT IN…: each file is code, bits and dimensions of a tensor, its shape, its elements.
RUNNER = """
#include <stdio.h>
#include <stdlib.h>
#include "lathe_rt.h"

static LatheRtTensor read_tensor(const char *path)
{
  static int64_t shapes[16][8];
  static int n;
  int32_t head[3];
  FILE *f = fopen(path, "rb");
  LatheRtTensor t = {.device = {LATHE_RT_CPU, 0}, .shape = shapes[n++]};
  if (!f || fread(head, sizeof head, 1, f) != 1) exit(2);
  t.dtype = (LatheRtDType){(uint8_t)head[0], (uint8_t)head[1], 1};
  t.ndim = head[2];
  if (t.ndim && fread(t.shape, 8, (size_t)t.ndim, f) != (size_t)t.ndim) exit(2);
  size_t bytes = (size_t)head[1] / 8;
  for (int d = 0; d < t.ndim; d++) bytes *= (size_t)t.shape[d];
  t.data = malloc(bytes + 1);
  if (fread(t.data, 1, bytes, f) != bytes) exit(2);
  fclose(f);
  return t;
}

int main(int argc, char **argv)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  const LatheRtTensor *y;
  if (argc < 3 || lathe_rt_model_load(argv[1], &model, &err) || lathe_rt_executor_new(model, &executor, &err))
    return fprintf(stderr, "%s\\n", err.text), 1;
  for (int i = 3; i < argc; i++) {
    LatheRtTensor x = read_tensor(argv[i]);
    if (lathe_rt_set_input(executor, i - 3, &x, &err)) return fprintf(stderr, "%s\\n", err.text), 1;
    free(x.data);
  }
  size_t bytes;
  if (lathe_rt_run(executor, &err) || lathe_rt_get_output(executor, 0, &y, &err) ||
      lathe_rt_tensor_bytes(y, &bytes, &err))
    return fprintf(stderr, "%s\\n", err.text), 1;
  FILE *f = fopen(argv[2], "wb");
  const int32_t head[3] = {y->dtype.code, y->dtype.bits, y->ndim};
  fwrite(head, sizeof head, 1, f);
  fwrite(y->shape, 8, (size_t)y->ndim, f);
  fwrite(y->data, 1, bytes, f);
  fclose(f);
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
"""


def tools(name):
    """Triple, target and emulator of a machine; a test that has not what they need is skipped."""
    triple, options, emulator = MACHINES[name]
    if not shutil.which(f"{triple}-gcc") or not shutil.which(emulator[0]):
        pytest.skip(f"needs {triple}-gcc and {emulator[0]} (tools/setup cross)")
    return triple, f"llvm -mtriple={triple} {options}".strip(), with_libraries(emulator, triple)


def with_libraries(emulator, triple):
    """It finds the machine's C library where the cross compiler has it."""
    return [*emulator, "-L", f"/usr/{triple}"] if pathlib.Path(f"/usr/{triple}/lib").is_dir() else emulator


class Emulated:
    """A file for the runtime, which is compiled for the machine with a program around it, under qemu-user."""

    serves_open_sizes = True

    def __init__(self, name):
        self.name = name
        self.target = f"llvm -mtriple={MACHINES[name][0]} {MACHINES[name][1]}".strip()

    @functools.cached_property
    def program(self):
        triple, _, emulator = tools(self.name)
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        (folder / "run.c").write_text((HAS_V if self.name == "riscv64-v" else "") + RUNNER)
        command = [f"{triple}-gcc", "-w", "-O0", f"-I{ROOT / 'include'}", folder / "run.c", ROOT / "runtime/lathe_rt.c",
                   "-rdynamic", "-lpthread", "-ldl", "-lm", "-o", folder / "run"]  # fmt: skip
        subprocess.run(command, check=True)
        return [*emulator, folder / "run"]

    def build(self, mod, params):
        return relay.build(mod, target=self.target, params=params)

    def run(self, lib, inputs, folder):
        lib.export_library(folder / "net.so")
        files = []
        for i, x in enumerate(inputs.values()):
            files.append(folder / f"in{i}")
            head = np.array(["iuf".index(x.dtype.kind), 8 * x.itemsize, x.ndim], "int32")
            files[-1].write_bytes(head.tobytes() + np.array(x.shape, "int64").tobytes() + x.tobytes())
        command = [*self.program, folder / "net.so", folder / "out", *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return read_tensor((folder / "out").read_bytes())


def read_tensor(data):
    code, bits, ndim = np.frombuffer(data, "int32", 3)
    shape = np.frombuffer(data, "int64", ndim, 12)
    dtype = "bool" if bits == 1 else f"{'iuf'[code]}{bits // 8}"
    return np.frombuffer(data, dtype, offset=12 + 8 * ndim).reshape(shape)


# Over a model that is loaded and arrays in base64, by JavaScript that node and browsers take: the first output so.
IN_JAVASCRIPT = """
async function answer(module, inputs) {
  const { load } = await import(module);
  const model = await load(undefined, { threads: 2 });
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const array = (port) => [port.name, new port.array(bytes(inputs[port.name]))];
  const y = Object.values(model.run(Object.fromEntries(model.inputs.map(array))))[0];
  model.dispose();
  const text = [...new Uint8Array(y.buffer)].map((b) => String.fromCharCode(b)).join("");
  return { shape: model.outputs[0].shape, dtype: model.outputs[0].dtype, data: btoa(text) };
}
"""


class Node:
    """WebAssembly, in node."""

    serves_open_sizes = False
    target = "wasm"

    def build(self, mod, params):
        return relay.build(mod, target=self.target, params=params, executor=Executor("aot"))

    def answer(self, folder, inputs):
        if not shutil.which("node"):
            pytest.skip("needs node (tools/setup web)")
        script = IN_JAVASCRIPT + 'import fs from "node:fs";\nconst job = JSON.parse(fs.readFileSync(0));\n'
        script += "console.log(JSON.stringify(await answer(job.module, job.inputs)));"
        job = json.dumps({"module": str(folder / "net.js"), "inputs": inputs})
        done = subprocess.run(["node", "--input-type=module", "-e", script], input=job, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, lib, inputs, folder):
        lib.export_library(folder / "net.js")
        text = {name: base64.b64encode(np.ascontiguousarray(x).tobytes()).decode() for name, x in inputs.items()}
        y = self.answer(folder, text)
        return np.frombuffer(base64.b64decode(y["data"]), y["dtype"]).reshape(y["shape"])


class Browser(Node):
    """The same in headless Chromium, on a page that may have threads."""

    def answer(self, folder, inputs):
        if not chromium.BROWSER:
            pytest.skip("needs chromium (tools/setup browser)")
        with chromium.served(folder, isolated=True) as url, chromium.browser() as page:
            page.open(f"{url}/index.html")
            page.run(IN_JAVASCRIPT + "; window.answer = answer; 0")
            return page.run(f'answer("{url}/net.js", {json.dumps(inputs)})')


PAGES = {"node": Node, "chromium": Browser}
NAMES = [*MACHINES, *PAGES]


def machine(name):
    if name not in NAMES:
        raise ValueError(f"there is no machine '{name}'; there are {', '.join(NAMES)}")
    return PAGES[name]() if name in PAGES else Emulated(name)
