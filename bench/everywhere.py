#!/usr/bin/env python3
"""The same networks through LLVM, through a C compiler and as WebAssembly in node: speed as a part of LLVM's.

    bench/everywhere.py [--networks resnet18,…] [--rounds 5] [--cache FOLDER] [--wasm TARGET,…] [--json] [--check]

One thread each.  What is measured is processor time, in turn, round after round, and the least of the rounds counts:
other programs on the machine disturb that little.  LLVM's programs have vectors of 128 bits (on x86-64
-mcpu=x86-64-v2) where they stand beside WebAssembly, and the machine's own beside C.  `c` goes through $CC, or cc."""
import argparse
import json
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import models  # noqa: E402
import peers  # noqa: E402

LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"
NETWORKS = ["resnet18", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "efficientnet_b0", "minilm_l6"]
C_RATIO, WASM_RATIO, TOLERANCE = 0.75, 0.4, 1e-3
WARM_UP = 3          # node compiles again what runs often
NARROW = "x86-64-v2" if platform.machine() == "x86_64" else "native"

# Reads a line for each run and answers with its microseconds of processor time; with a name, writes the outputs there.
RUNNER = """
import fs from "node:fs";
import readline from "node:readline";
const [module, feeds] = process.argv.slice(1);
const model = await (await import(module)).load(undefined, { threads: 1 });
const inputs = {};
const bytes = (name) => Uint8Array.from(fs.readFileSync(`${feeds}/${name}`)).buffer;
for (const p of model.inputs) inputs[p.name] = new p.array(bytes(p.name));
console.log("ready");
for await (const line of readline.createInterface({ input: process.stdin })) {
  const before = process.cpuUsage();
  const outputs = model.run(inputs);
  const { user, system } = process.cpuUsage(before);
  if (line) Object.values(outputs).forEach((y, i) => fs.writeFileSync(`${line}.${i}`, new Uint8Array(y.buffer)));
  console.log(user + system);
}
"""


class Node:
    """A module of WebAssembly in a node of its own."""

    def __init__(self, module, feeds, folder):
        self.feeds, self.folder = feeds, folder
        for name, x in feeds.items():
            (folder / name).write_bytes(x.tobytes())
        self.child = subprocess.Popen(
            ["node", "--input-type=module", "-e", RUNNER, module, folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert self.child.stdout.readline() == "ready\n", "node did not start"

    def seconds(self, outputs=""):
        self.child.stdin.write(f"{outputs}\n")
        self.child.stdin.flush()
        return int(self.child.stdout.readline()) * 1e-6

    def outputs(self, like):
        import numpy as np

        path = self.folder / "outputs"
        self.seconds(path)
        return [np.frombuffer(pathlib.Path(f"{path}.{i}").read_bytes(), y.dtype).reshape(y.shape)
                for i, y in enumerate(like)]  # fmt: skip

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Here:
    """A file for the runtime, in this process."""

    def __init__(self, path, feeds):
        self.runner, self.feeds = peers.Lathe(peers.lathe_module().runtime.load_module(str(path)), 1), feeds

    def seconds(self):
        start = time.process_time()
        self.runner.run(self.feeds)
        return time.process_time() - start

    def outputs(self, like=()):
        return self.runner.run(self.feeds)

    def close(self):
        pass


def compiled(source, target, out, *more):
    """The network compiled, as a file or a folder; again only when the compiler or the network is newer."""
    newest = max(os.path.getmtime(p) for p in (source, LATHE, LATHE.with_name("liblathe.so")))
    made = out / "model.js" if out.suffix == "" else out
    if not made.exists() or made.stat().st_mtime < newest:
        done = subprocess.run([LATHE, "compile", source, "--target", target, "-o", out, *more], capture_output=True,
                              text=True)  # fmt: skip
        if done.returncode:
            sys.exit(f"{source.stem} for {target}: {done.stderr.strip()}")
    return made


def measure(source, wasm, folder, rounds):
    """{program: {seconds, error}}"""
    feeds = models.random_feeds(source, 1)
    stem = source.stem
    runners = {"llvm": Here(compiled(source, "llvm -mcpu=native", folder / f"{stem}.llvm.so"), feeds),
               "c": Here(compiled(source, "c -mcpu=native", folder / f"{stem}.c.so"), feeds)}  # fmt: skip
    if wasm and NARROW != "native":
        runners["llvm, 128 bits"] = Here(compiled(source, f"llvm -mcpu={NARROW}", folder / f"{stem}.128.so"), feeds)
    for i, target in enumerate(wasm):
        exchange = pathlib.Path(tempfile.mkdtemp(dir=folder))
        runners[target] = Node(compiled(source, target, folder / f"{stem}-web{i}", "-f", "web"), feeds, exchange)
    wanted = runners["llvm"].outputs()
    errors = {name: peers.relative_error(r.outputs(wanted), wanted) for name, r in runners.items()}
    for r in runners.values():
        for _ in range(WARM_UP):
            r.seconds()
    least = {name: math.inf for name in runners}
    for i in range(rounds):
        for name in list(runners) if i % 2 == 0 else list(runners)[::-1]:
            least[name] = min(least[name], runners[name].seconds())
    for r in runners.values():
        r.close()
    return {name: {"seconds": least[name], "error": errors[name]} for name in runners}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wasm", default="wasm" if shutil.which("node") else "", help="targets of node's programs")
    parser.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "lathe-bench-models"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a ratio is missed")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds takes 1 or more")
    shared = models.shared_models()
    if not shared:
        sys.exit("skipped: the graphs were not found; set LATHE_SHARED to the folder that holds models/graphs")
    folder = pathlib.Path(args.cache)
    folder.mkdir(parents=True, exist_ok=True)
    wasm, rows, missed = [t for t in args.wasm.split(",") if t], {}, []
    if not args.json:
        print(peers.table_head("network", "LLVM, ms", *(f"{t}, times LLVM's speed" for t in ["c", *wasm])))
    for name in args.networks.split(","):
        found = rows[name] = measure(models.filled(shared, name, folder), wasm, folder, args.rounds)
        beside = found.get("llvm, 128 bits", found["llvm"])["seconds"]
        ratios = {"c": found["llvm"]["seconds"] / found["c"]["seconds"]}
        ratios |= {t: beside / found[t]["seconds"] for t in wasm}
        missed += [f"{name}, {t}: {r:.2f}" for t, r in ratios.items() if r < (C_RATIO if t == "c" else WASM_RATIO)]
        missed += [f"{name}, {t}: relative error {f['error']:.1e}" for t, f in found.items() if f["error"] > TOLERANCE]
        if not args.json:
            cells = [f"{r:.2f}" for r in ratios.values()]
            print(peers.table_row(name, f"{found['llvm']['seconds'] * 1e3:.1f}", *cells), flush=True)
    if args.json:
        print(json.dumps(rows))
    for line in missed:
        print("missed:", line, file=sys.stderr)
    return 1 if missed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
