#!/usr/bin/env python3
"""Other programs that run the same networks: ONNX Runtime, OpenVINO, ncnn, MNN, torch, TVM.

    bench/peers.py            which of them are installed here, and which not and why

A peer has a name, available() (None, or the reason why it cannot be used), version(), and
load(path, threads), which gives a runner: runner.run(feeds) -> outputs in the
model's order.  The ONNX file has every size fixed.  float32 is asked for explicitly: several
peers compute in half precision by themselves where the machine can.  Peer.half = True asks for float16 instead.
Lathe itself has the same face.  side_by_side() measures runners in turn."""
import importlib
import importlib.metadata
import logging
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Peer:
    """What a peer is; the classes below say how it is loaded."""

    name = package = ""
    modules = ()
    half = False          # float16 where the peer can: OpenVINO, ncnn, MNN

    @classmethod
    def available(cls):
        """None when it can be used, or the reason."""
        for module in cls.modules:
            try:
                importlib.import_module(module)
            except Exception as e:        # a broken package raises anything
                return f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else module}"
        return None

    @classmethod
    def version(cls):
        return importlib.metadata.version(cls.package)

    @classmethod
    def load(cls, path, threads):
        return cls(pathlib.Path(path), threads)


def convert(command, made):
    """Runs a converter; it has failed when a file that it should write is not there."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    if done.returncode or not all(p.exists() for p in made):
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
        raise RuntimeError(f"its converter failed: {last[0].strip() if last else f'status {done.returncode}'}")


class OnnxRuntime(Peer):
    name, package, modules = "ONNX Runtime", "onnxruntime", ("onnxruntime",)

    def __init__(self, path, threads):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.runner = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, feeds):
        return self.runner.run(None, feeds)


class OpenVino(Peer):
    name, package, modules = "OpenVINO", "openvino", ("openvino",)

    def __init__(self, path, threads):
        import openvino as ov

        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_PRECISION_HINT": "f16" if self.half else "f32", "ENABLE_CPU_PINNING": False}
        core = ov.Core()
        self.request = core.compile_model(core.read_model(str(path)), "CPU", settings).create_infer_request()

    def run(self, feeds):
        found = self.request.infer(feeds, share_inputs=True, share_outputs=False)
        return [found[i] for i in range(len(found))]


class Ncnn(Peer):
    """Through pnnx.  A blob has no batch dimension; one of size 1 is taken off and put back."""

    name, package, modules = "ncnn", "ncnn", ("ncnn", "pnnx")

    def __init__(self, path, threads):
        import ncnn
        import onnx
        import pnnx

        graph = onnx.load(str(path)).graph
        weights = {t.name for t in graph.initializer}
        inputs = [v for v in graph.input if v.name not in weights]
        if any(v.type.tensor_type.elem_type != onnx.TensorProto.FLOAT for v in inputs):
            raise RuntimeError("ncnn takes float32 inputs alone")
        self.inputs = [v.name for v in inputs]
        self.shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.output]
        with tempfile.TemporaryDirectory() as folder:      # pnnx writes beside the model
            model, made = pathlib.Path(folder) / "m.onnx", [
                pathlib.Path(folder) / f"m.ncnn.{e}" for e in ("param", "bin")
            ]
            model.symlink_to(path.resolve())
            convert([pnnx.EXEC_PATH, model, "fp16=0"], made)
            net = ncnn.Net()
            net.opt.num_threads, net.opt.use_vulkan_compute = threads, False
            for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
                if hasattr(net.opt, f"use_{option}"):
                    setattr(net.opt, f"use_{option}", self.half and option.startswith("fp16"))
            if net.load_param(str(made[0])) or net.load_model(str(made[1])):
                raise RuntimeError("ncnn does not load what pnnx wrote")
        self.net, self.ncnn = net, ncnn

    def run(self, feeds):
        with self.net.create_extractor() as ex:
            for i, name in enumerate(self.inputs):
                x = feeds[name]
                ex.input(f"in{i}", self.ncnn.Mat(x[0] if x.shape[0] == 1 else x))
            out = []
            for i, shape in enumerate(self.shapes):
                status, mat = ex.extract(f"out{i}")
                if status:
                    raise RuntimeError(f"ncnn does not compute output {i}: status {status}")
                y = np.array(mat)
                if y.size != int(np.prod(shape)):
                    raise RuntimeError(f"ncnn gives output {i} the shape {y.shape}, not {tuple(shape)}")
                out.append(y.reshape(shape))
            return out


class Mnn(Peer):
    """The converter is called without its wrapper, MNN.tools, which installs packages and reports its use."""

    name, package, modules = "MNN", "MNN", ("MNN", "_tools")
    CONVERTER = "import sys, _tools; _tools.mnnconvert(sys.argv)"

    def __init__(self, path, threads):
        import MNN
        import onnx

        graph = onnx.load(str(path)).graph
        weights = {t.name for t in graph.initializer}
        self.inputs, self.outputs = [v.name for v in graph.input if v.name not in weights], [
            v.name for v in graph.output
        ]
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "m.mnn"
            convert(
                [
                    sys.executable,
                    "-c",
                    self.CONVERTER,
                    "-f",
                    "ONNX",
                    "--modelFile",
                    path,
                    "--MNNModel",
                    model,
                    "--bizCode",
                    "bench",
                ],
                [model],
            )
            # precision high: float32, low: float16.  The runtime manager must outlive the module.
            precision = "low" if self.half else "high"
            self.manager = MNN.nn.create_runtime_manager(
                ({"backend": "CPU", "precision": precision, "numThread": threads},)
            )
            self.module = MNN.nn.load_module_from_file(
                str(model), self.inputs, self.outputs, runtime_manager=self.manager, shape_mutable=True
            )
        self.MNN = MNN

    def run(self, feeds):
        F, out = self.MNN.expr, []
        kinds = {"float32": F.float, "int64": F.int, "int32": F.int}
        given, kept = [], []          # MNN may read the arrays as late as in forward
        for name in self.inputs:
            x = feeds[name]
            kind = kinds[str(x.dtype)]
            x = np.ascontiguousarray(x, "float32" if kind == F.float else "int32")
            kept.append(x)
            given.append(F.const(x, list(x.shape), F.NCHW, kind))
        for v in self.module.forward(given):
            out.append(np.array(F.convert(v, F.NCHW).read()))
        return out


class Torch(Peer):
    """Through onnx2torch."""

    name, package, modules = "torch", "torch", ("torch", "onnx2torch")

    def __init__(self, path, threads):
        import onnx
        import onnx2torch
        import torch

        self.torch, self.threads = torch, threads
        model = onnx.load(str(path))
        weights = {t.name for t in model.graph.initializer}
        self.inputs = [v.name for v in model.graph.input if v.name not in weights]
        shared = {
            n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Identity" and n.input[0] in weights
        }
        for node in list(model.graph.node):           # onnx2torch does not take a weight that comes through an Identity
            if node.output[0] in shared:
                model.graph.node.remove(node)
            else:
                node.input[:] = [shared.get(name, name) for name in node.input]
        self.module = onnx2torch.convert(model).eval().float()

    def run(self, feeds):
        torch = self.torch
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            out = self.module(*(torch.from_numpy(feeds[n]) for n in self.inputs))
        return [t.numpy() for t in (out if isinstance(out, (list, tuple)) else [out])]


class Tvm(Peer):
    """Untuned.  Relay where this TVM still has it, Relax where not."""

    name, package, modules = "TVM", "apache-tvm", ("tvm",)

    @classmethod
    def version(cls):
        return importlib.import_module("tvm").__version__

    def __init__(self, path, threads):
        import onnx
        import tvm

        model, cpu = onnx.load(str(path)), tvm.cpu()
        weights = {t.name for t in model.graph.initializer}
        self.tvm, self.threads, self.cpu = tvm, threads, cpu
        self.inputs = [v.name for v in model.graph.input if v.name not in weights]
        target = tvm.target.Target({"kind": "llvm", "mcpu": host_cpu(tvm), "mattr": host_lacks()})
        if hasattr(tvm, "relay"):
            from tvm.contrib import graph_executor

            module, params = tvm.relay.frontend.from_onnx(model)
            with tvm.transform.PassContext(opt_level=3):
                library = tvm.relay.build(module, target=target, params=params)
            self.machine, self.graph = None, graph_executor.GraphModule(library["default"](cpu))
        else:
            from tvm import relax
            from tvm.relax.frontend.onnx import from_onnx

            module = from_onnx(model)
            with target:
                library = tvm.compile(relax.get_pipeline("zero")(module), target=target)
            self.machine, self.graph = relax.VirtualMachine(library, cpu), None

    def run(self, feeds):
        os.environ["TVM_NUM_THREADS"] = str(self.threads)
        if threads := self.tvm.get_global_func("runtime.config_threadpool", allow_missing=True):
            threads(1, self.threads)
        if self.graph is not None:
            for name in self.inputs:
                self.graph.set_input(name, feeds[name])
            self.graph.run()
            return [self.graph.get_output(i).numpy() for i in range(self.graph.get_num_outputs())]
        make = getattr(self.tvm.runtime, "tensor", None) or self.tvm.nd.array
        out = self.machine["main"](*(make(feeds[n], self.cpu) for n in self.inputs))
        return [out.numpy()] if hasattr(out, "numpy") else [o.numpy() for o in out]


def host_cpu(tvm):
    """This machine's name for LLVM."""
    ask = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True) or tvm.get_global_func(
        "tvm.codegen.llvm.GetHostCPUName", allow_missing=True
    )
    return str(ask()) if ask else "native"


def host_lacks():
    """What LLVM takes a processor of this name to have and this machine, a virtual one say, does not show."""
    flags = pathlib.Path("/proc/cpuinfo")
    shown = flags.read_text().split() if flags.exists() else ["sve"]
    return ["-sve"] if platform.machine() == "aarch64" and "sve" not in shown else []


class Lathe(Peer):
    """The same face over Lathe: compiled in this process, nothing tuned."""

    name = "Lathe"

    @classmethod
    def version(cls):
        return lathe_module().__version__

    @classmethod
    def compile(cls, path, level=3, target="llvm -mcpu=native", config=None, shape=None):
        """A compiled model, and the seconds that it took with the import.
        shape: {input: sizes} that the file leaves open."""
        lathe = lathe_module()
        start = time.perf_counter()
        module, params = lathe.relay.frontend.from_onnx(str(path), shape)
        with lathe.transform.PassContext(opt_level=level, config=config or {}):
            library = lathe.relay.build(module, target=target, params=params)
        return library, time.perf_counter() - start

    def __init__(self, library, threads):
        self.executor = library["default"](lathe_module().cpu(0)).executor
        self.executor.set_threads(threads)

    def run(self, feeds):
        executor = self.executor
        for name, x in feeds.items():
            executor.set_input(name, x)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(len(executor.outputs))]


def lathe_module():
    """lathe with relay, from this tree."""
    if str(ROOT / "python") not in sys.path:
        sys.path.insert(0, str(ROOT / "python"))
    importlib.import_module("lathe.relay")
    return importlib.import_module("lathe")


ALL = [OnnxRuntime, OpenVino, Ncnn, Mnn, Torch, Tvm]


SETTLE_STEP, SETTLE_MOST = 0.01, 0.5     # seconds


def time_once(call, at_least=0.15):
    """The median of a few calls after one that warms up: three at least, more while they are short."""
    call()
    seconds, start = [], time.perf_counter()
    while len(seconds) < 3 or (time.perf_counter() - start < at_least and len(seconds) < 200):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def settle():
    """Sleeps until the threads of the last program have stopped spinning."""
    deadline = time.perf_counter() + SETTLE_MOST
    while time.perf_counter() < deadline:
        start, used = time.perf_counter(), time.process_time()
        time.sleep(SETTLE_STEP)
        if time.process_time() - used < (time.perf_counter() - start) / 10:
            return


def side_by_side(runners, feeds, rounds, at_least=0.15):
    """{name: the median of each round} of runners that are measured in turn, round after round."""
    seconds = {name: [] for name in runners}
    for i in range(rounds):
        order = list(runners) if i % 2 == 0 else list(runners)[::-1]
        for name in order:
            settle()
            seconds[name].append(time_once(lambda: runners[name].run(feeds), at_least))
    return seconds


SAMPLE_SECONDS, FEWEST_SAMPLES = 4e-4, 5


def cpu_times(runners, feeds, samples, at_most=float("inf")):
    """{name: [seconds]}: the processor time of a call in short samples, taken in turn: sample i of one runner stands
    beside sample i of the others.  A sample is as many calls as make it long enough to be read.  Fewer samples are
    taken when they would need more than at_most seconds altogether."""
    calls, times = {}, {name: [] for name in runners}
    for name, runner in runners.items():
        runner.run(feeds)
        start = time.process_time()
        for _ in range(3):
            runner.run(feeds)
        calls[name] = max(1, int(SAMPLE_SECONDS / max((time.process_time() - start) / 3, 1e-6)))
    begin = time.process_time()
    for i in range(samples):
        if i >= FEWEST_SAMPLES and time.process_time() - begin > at_most:
            break
        for name in list(runners) if i % 2 == 0 else list(runners)[::-1]:
            run = runners[name].run
            if calls[name] > 1 or not times[name] or times[name][-1] < 10 * SAMPLE_SECONDS:
                run(feeds)                     # brings the case's data back into the caches
            start = time.process_time()
            for _ in range(calls[name]):
                run(feeds)
            times[name].append((time.process_time() - start) / calls[name])
    return times


FAST_TOLERANCE = 2e-2     # of reduced precision, over a whole network


def wrong_when_fast(found, wanted):
    """None, or what is wrong with an answer in reduced precision: too far off, or another largest element of a row."""
    error = relative_error(found, wanted)
    if not error <= FAST_TOLERANCE:
        return f"wrong output: relative error {error:.1e} in reduced precision"
    if wanted[0].ndim == 2 and not np.array_equal(np.argmax(found[0], -1), np.argmax(wanted[0], -1)):
        return "wrong output: another largest element than in float32"
    return None


def relative_error(found, wanted):
    """The largest |x - y| / |y| over the outputs, as vectors; infinity where shapes or NaNs differ."""
    worst = 0.0
    if len(found) != len(wanted):
        return float("inf")
    for x, y in zip(found, wanted):
        x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
        if x.shape != y.shape or not np.array_equal(np.isnan(x), np.isnan(y)):
            return float("inf")
        norm = np.linalg.norm(np.nan_to_num(y))
        worst = max(worst, float(np.linalg.norm(np.nan_to_num(x - y)) / (norm if norm else 1.0)))
    return worst


def table_row(*cells):
    """A line of a markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def table_head(*names):
    """The first two lines."""
    return f"{table_row(*names)}\n{'|---' * len(names)}|"


def own_stdout():
    """The standard output for tables alone: what libraries print goes to standard error from now on."""
    sys.stdout.flush()
    mine = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    return mine


def chosen(names=None):
    """The peers that can be used, and {name: reason} of the others; names as ort, openvino, ncnn, mnn, torch, tvm."""
    known = {"ort": OnnxRuntime, "onnxruntime": OnnxRuntime} | {p.name.lower(): p for p in ALL}
    wanted = ALL
    if names:
        unknown = [n for n in names if n.lower() not in known]
        if unknown:
            raise SystemExit(f"no peer '{unknown[0]}'; there are ort, {', '.join(p.name.lower() for p in ALL[1:])}")
        wanted = [known[n.lower()] for n in names]
    reasons = {p.name: p.available() for p in wanted}
    return [p for p in wanted if reasons[p.name] is None], {n: r for n, r in reasons.items() if r is not None}


def main():
    usable, missing = chosen()
    for peer in usable:
        print(f"{peer.name} {peer.version()}")
    for name, why in missing.items():
        print(f"{name}: not here ({why})")


if __name__ == "__main__":
    main()
