"""Runs the CUDA source of a built module on the CPU, one host thread for each thread of
a block: what a kernel computes can be checked where there is no GPU."""

import re
import shutil
import subprocess

import numpy as np
import pytest

_HEAD = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
struct Place { int x, y, z; };
static thread_local Place threadIdx, blockIdx;
static pthread_barrier_t all_threads;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)
static float __int_as_float(int32_t i) { union { int32_t i; float f; } u = {i}; return u.f; }
static double __longlong_as_double(int64_t i) { union { int64_t i; double f; } u = {i}; return u.f; }
#define __syncthreads() pthread_barrier_wait(&all_threads)
"""

_MAIN = r"""
static void *arg[%(nargs)d];
static const int block[3] = {%(block)s}, grid[3] = {%(grid)s};
static void *thread(void *number)
{
  int t = (int)(intptr_t)number;
  threadIdx = {t %% block[0], t / block[0] %% block[1], t / block[0] / block[1]};
  for (int z = 0; z < grid[2]; z++)
    for (int y = 0; y < grid[1]; y++)
      for (int x = 0; x < grid[0]; x++) {
        blockIdx = {x, y, z};
        %(call)s
        __syncthreads();
      }
  return nullptr;
}
int main(int, char **file)
{
  static const size_t bytes[] = {%(bytes)s};
  for (int i = 0; i < %(nargs)d; i++) {
    arg[i] = std::malloc(bytes[i] + 1);
    FILE *f = std::fopen(file[1 + i], "rb");
    if (!f || std::fread(arg[i], 1, bytes[i], f) != bytes[i]) return 2;
    std::fclose(f);
  }
  enum { N = %(threads)d };
  static pthread_t id[N];
  pthread_barrier_init(&all_threads, nullptr, N);
  for (int i = 0; i < N; i++)
    if (pthread_create(&id[i], nullptr, thread, (void *)(intptr_t)i)) return 3;
  for (int i = 0; i < N; i++) pthread_join(id[i], nullptr);
  for (int i = 0; i < %(nargs)d; i++) {
    FILE *f = std::fopen(file[1 + i], "wb");
    if (!f || std::fwrite(arg[i], 1, bytes[i], f) != bytes[i]) return 4;
    std::fclose(f);
  }
  return 0;
}
"""


def run_kernels(source, folder, arrays, sizes=None):
    """Runs the launches of a CUDA source in order on named numpy arrays, in place; sizes
    are the values of the scalar arguments.  A barrier that not all threads reach ends in
    a timeout."""
    cxx = shutil.which("g++") or shutil.which("clang++")
    if not cxx:
        pytest.skip("no C++ compiler to run CUDA text with")
    sizes = dict(sizes or {})
    launches = re.findall(
        r"/\* [^\n]*, launch \d+\n \*\s+grid +\((.*)\)\n \*\s+block +\((.*)\)\n \*\s+with +\((.*)\) \*/\s*"
        r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)',
        source,
    )
    assert launches, "the source has no launch"
    for k, (grid, block, names, kernel, params) in enumerate(launches):
        whole = [[eval(x.replace("/", "//"), {}, sizes) for x in dims.split(",")] for dims in (grid, block)]
        names = [n.strip() for n in names.split(",")]
        types = [re.sub(r"const |__restrict__|\w+$", "", p.strip()).strip() for p in params.split(",")]
        tensors = [n for n in names if n in arrays]
        call = ", ".join(str(sizes[n]) if n in sizes else f"({t})arg[{tensors.index(n)}]" for n, t in zip(names, types))
        text = (
            _HEAD
            + source.replace('extern "C" ', "")
            + _MAIN
            % {
                "nargs": len(tensors),
                "block": ", ".join(map(str, whole[1])),
                "grid": ", ".join(map(str, whole[0])),
                "call": f"{kernel}({call});",
                "threads": int(np.prod(whole[1])),
                "bytes": ", ".join(str(arrays[n].nbytes) for n in tensors),
            }
        )
        path, program = folder / f"kernel{k}.cc", folder / f"kernel{k}"
        path.write_text(text)
        subprocess.run([cxx, "-O1", "-pthread", "-o", str(program), str(path)], check=True, capture_output=True)
        files = [str(folder / f"{n}.bin") for n in tensors]
        for n, f in zip(tensors, files):
            arrays[n].tofile(f)
        subprocess.run([str(program), *files], check=True, timeout=60)
        for n, f in zip(tensors, files):
            arrays[n][...] = np.fromfile(f, arrays[n].dtype).reshape(arrays[n].shape)
