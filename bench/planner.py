#!/usr/bin/env python3
"""How near the memory plans of whole networks come to what no plan can go below.

    bench/planner.py [--networks resnet50,bert] [--target cortex-m4] [--models DIR] [--rounds 2] [--check]

Each network becomes a program ahead of time, kernels' scratch memory included.  `workspace` is what the planner
takes, `bound` the bytes that are needed at one instruction, `by size` what placing from the largest tensor to the
smallest takes.  `seconds` is the planner's: processor time of the compilation less that of one that places by size
alone, the least of the rounds each.  --check fails where a plan is more than 2 % above its bound and not proven the
smallest, above placing by size, or takes more than 2 seconds.  MobileNetV2 and BERT come from DIR (graphs and their
fill.py)."""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT / "../shared"))
NETWORKS = {
    "MobileNetV1": ("mobilenet", {}),
    "MobileNetV2": ("mobilenet_v2", {"input": (1, 3, 224, 224)}),
    "ResNet-18": ("resnet", {"num_layers": 18}),
    "ResNet-50": ("resnet", {"num_layers": 50}),
    "Inception v3": ("inception_v3", {}),
    "DenseNet-121": ("densenet", {"densenet_size": 121}),
    "BERT base": ("bert_base", {"input_ids": (1, 128), "attention_mask": (1, 128)}),
}
ABOVE, SECONDS = 1.02, 2.0


def network(name, options, models, folder):
    """The module and its parameters; None where its file is not there."""
    import lathe.relay.testing as testing
    from lathe import relay

    if hasattr(testing, name):
        return getattr(testing, name).get_workload(**options)
    graph = models / "graphs" / f"{name}.onnx"
    if not graph.exists():
        return None
    path = pathlib.Path(folder) / f"{name}.onnx"
    subprocess.run([sys.executable, models / "fill.py", graph, path], check=True, stdout=subprocess.DEVNULL)
    return relay.frontend.from_onnx(str(path), options)


def plan(mod, params, target, algorithm):
    """The planner's report and the processor time of the compilation."""
    from lathe import relay
    from lathe._ffi.core import call
    from lathe.ir.transform import PassContext
    from lathe.relay.build_module import as_module
    from lathe.target import Target

    module, handles = as_module(mod, params), [Target(target)._h]
    context = PassContext.current().for_compiler(handles)
    start = time.process_time()
    made = call("compile", module, handles, context, None, False, None, [], "ready", [["algorithm", algorithm]])
    took = time.process_time() - start
    path = os.environ.pop("PATH")  # without a compiler the report does not measure code
    report = json.loads(call("compiled_aot_report", made, "json"))
    os.environ["PATH"] = path
    return report["entries"][0], took


def row(name, mod, params, args):
    best, by_size = math.inf, math.inf
    for _ in range(args.rounds):
        entry, took = plan(mod, params, args.target, "best")
        best = min(best, took)
        by_size = min(by_size, plan(mod, params, args.target, "greedy_by_size")[1])
    seconds = max(best - by_size, 0)
    bytes_, bound, greedy = (entry[k] for k in ("workspace_bytes", "bound_bytes", "greedy_by_size_bytes"))
    proven = "reached" if bytes_ == bound else "smallest" if entry["optimal"] else f"{100 * (bytes_ / bound - 1):.2f} %"
    print(f"| {name} | {bytes_} | {bound} | {proven} | {greedy} | {seconds:.2f} |", flush=True)
    return (bytes_ <= ABOVE * bound or entry["optimal"]) and bytes_ <= greedy and seconds < SECONDS


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--networks", default=",".join(NETWORKS))
    p.add_argument("--target", default="cortex-m4")
    p.add_argument("--models", type=pathlib.Path, default=SHARED / "models")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    print(f"| network, target {args.target} | workspace | bound | above it | by size | seconds |")
    print("|---|---|---|---|---|---|")
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.networks.split(","):
            made = network(*NETWORKS[name], args.models, folder)
            if made is None:
                print(f"| {name} | its file is not there |")
            elif not row(name, *made, args):
                bad.append(name)
    if bad:
        print("worse than asked:", ", ".join(bad))
    return 1 if bad and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
