"""Instructions and RAM of networks on microcontrollers, in QEMU, beside CMSIS-NN's kernels (int8) and onnx2c (float).

  bench/micro.py [--peers FOLDER] [--models FOLDER] [--board BOARD] [--only NAME] [--work FOLDER]

The peers' archives (cmsis-nn.tar.xz, onnx2c.tar.xz) are unpacked and built in the work folder, outside the repository.
Every program runs on the same board with the same start-up code; instructions are counted by the program itself
(`lathe micro` says how).  Lathe's RAM is its workspace with inputs and outputs in it.  CMSIS-NN's functions are called layer by layer, as runtimes do, with the model's own weights and
quantization; its RAM is what lives at the worst layer, laid out without a gap, and the largest buffer that a
function asks for.  onnx2c's RAM is its static memory (.data and .bss) and inputs and outputs."""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"
SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT / "../shared"))
INT8 = {
    "hello_world": "hello_world_int8",
    "micro_speech": "micro_speech_quantized",
    "anomaly detection": "ad01_int8",
    "keyword spotting": "kws_ref_model",
    "image classification": "pretrainedResnet_quant",
    "MobileNetV1 0.25": "mobilenet_v1_0.25_224_quant",
}
FLOAT = {
    "digits": (ROOT / "examples/digits/digits.onnx", "pixels=1,1,8,8"),
    "MNIST": ("mnist_8/model.onnx", ""),
    "MNIST, dense": ("mnist_mlp.onnx", ""),
}


def sh(*args, **options):
    done = subprocess.run([str(a) for a in args], text=True, capture_output=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))[:300]} failed: {(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


# ---- TFLite's files, as far as the networks go ------------------------------------------------------------------------


class Table:
    """A table of a flatbuffer: fields by number."""

    def __init__(self, data, at):
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from("<i", data, at)[0]

    def _field(self, i):
        size = struct.unpack_from("<H", self.data, self.vtable)[0]
        offset = struct.unpack_from("<H", self.data, self.vtable + 4 + 2 * i)[0] if 4 + 2 * i < size else 0
        return self.at + offset if offset else None

    def scalar(self, i, form, default=0):
        at = self._field(i)
        return default if at is None else struct.unpack_from("<" + form, self.data, at)[0]

    def _follow(self, at):
        return at + struct.unpack_from("<I", self.data, at)[0]

    def table(self, i):
        at = self._field(i)
        return None if at is None else Table(self.data, self._follow(at))

    def tables(self, i):
        at = self._field(i)
        if at is None:
            return []
        at = self._follow(at)
        n = struct.unpack_from("<I", self.data, at)[0]
        return [Table(self.data, self._follow(at + 4 + 4 * k)) for k in range(n)]

    def numbers(self, i, form):
        at = self._field(i)
        if at is None:
            return []
        at = self._follow(at)
        n = struct.unpack_from("<I", self.data, at)[0]
        return list(struct.unpack_from(f"<{n}{form}", self.data, at + 4))


CODES = {0: "add", 1: "avgpool", 3: "conv", 4: "depthwise", 9: "dense", 22: "reshape", 25: "softmax"}


class Network:
    def __init__(self, path):
        data = path.read_bytes()
        model = Table(data, struct.unpack_from("<I", data, 0)[0])
        codes = [max(c.scalar(0, "b"), c.scalar(3, "i")) for c in model.tables(1)]
        graph, buffers = model.tables(2)[0], model.tables(4)
        self.tensors = []
        for t in graph.tables(0):
            quant = t.table(4)
            self.tensors.append({
                "shape": t.numbers(0, "i"), "type": t.scalar(1, "b"), "data": bytes(buffers[t.scalar(2, "I")].numbers(0, "B")),
                "scale": quant.numbers(2, "f") if quant else [], "zero": quant.numbers(3, "q") if quant else [],
            })  # fmt: skip
        self.inputs, self.outputs = graph.numbers(1, "i"), graph.numbers(2, "i")
        self.ops = [(CODES.get(codes[o.scalar(0, "I")], codes[o.scalar(0, "I")]), o.numbers(1, "i"), o.numbers(2, "i"), o.table(4))
                    for o in graph.tables(3)]  # fmt: skip
        for t in self.tensors:  # bytes of uint8 are CMSIS-NN's int8, 128 less
            if t["type"] == 3:
                t["data"] = bytes(b ^ 0x80 for b in t["data"])
                t["zero"] = [z - 128 for z in t["zero"]]


def bytes_of(t):
    return math.prod(t["shape"]) * {0: 4, 2: 4, 3: 1, 9: 1}[t["type"]]


# ---- a program that calls CMSIS-NN -----------------------------------------------------------------------------------


def multiplier(x):
    fraction, exponent = math.frexp(x)
    q = round(fraction * (1 << 31))
    return (q // 2, exponent + 1) if q == 1 << 31 else (q, exponent)


def limits(act, scale, zero):
    low, high = {0: (-math.inf, math.inf), 1: (0, math.inf), 3: (0, 6)}[act]
    fit = lambda v: zero + round(v / scale) if math.isfinite(v) else v  # noqa: E731
    return max(-128, fit(low)), min(127, fit(high))


def c_array(name, kind, values):
    text = ",".join(str(v) for v in values)
    return f"static const {kind} {name}[] __attribute__((aligned(8))) = {{{re.sub(r'((?:[^,]*,){40})', chr(92) + '1' + chr(10), text)}}};\n"


def out_size(size, k, stride, dilation, same):
    span = (k - 1) * dilation + 1
    out = -(-size // stride) if same else (size - span) // stride + 1
    return out, max(0, ((out - 1) * stride + span - size)) // 2 if same else 0


class Program:
    """C source that calls CMSIS-NN's functions for a network, layer by layer."""

    def __init__(self, net):
        self.net, self.head, self.before, self.body, self.layers = net, "", "", "", 0
        self.scratch = ["1"]
        for i, t in enumerate(net.tensors):
            if not t["data"] and any(i in ins + outs for _, ins, outs, _ in net.ops):
                self.head += f"static int8_t t{i}[{bytes_of(t)}] __attribute__((aligned(8)));\n"
            elif t["data"]:
                form, kind = ("b", "int8_t") if t["type"] in (3, 9) else ("i", "int32_t")
                n = len(t["data"]) // struct.calcsize(form)
                self.head += c_array(f"t{i}", kind, struct.unpack(f"<{n}{form}", t["data"]))
        for op in net.ops:
            getattr(self, op[0], self.unknown)(*op[1:])

    def unknown(self, *op):
        sys.exit(f"an operator that this benchmark does not call: {op}")

    def done(self, text, scratch=None):
        if scratch:
            self.scratch.append(scratch)
        self.body += f"  {{\n{text}    bad |= status != 0;\n    layer_done({self.layers});\n  }}\n"
        self.layers += 1

    def dims(self, name, n, h, w, c):
        return f"    const cmsis_nn_dims {name} = {{{n}, {h}, {w}, {c}}};\n"

    def channels(self, x, w, y, n):
        sx, sy = self.net.tensors[x]["scale"][0], self.net.tensors[y]["scale"][0]
        sw = self.net.tensors[w]["scale"]
        pairs = [multiplier(sx * sw[i % len(sw)] / sy) for i in range(n)]
        k = self.layers
        self.head += c_array(f"m{k}", "int32_t", [p[0] for p in pairs]) + c_array(f"s{k}", "int32_t", [p[1] for p in pairs])
        return f"    const cmsis_nn_per_channel_quant_params quant = {{(int32_t *)m{k}, (int32_t *)s{k}}};\n"

    def window(self, kind, ins, outs, options, acts):
        T, (x, w, b), y = self.net.tensors, ins, outs[0]
        (n, h, wd, c), (o, kh, kw, _), (_, oh, ow, oc) = T[x]["shape"], T[w]["shape"], T[y]["shape"]
        same = options.scalar(0, "b") == 0
        sw, sh_ = options.scalar(1, "i"), options.scalar(2, "i")
        pad = [out_size(h, kh, sh_, 1, same)[1], out_size(wd, kw, sw, 1, same)[1]]
        low, high = limits(options.scalar(acts, "b"), T[y]["scale"][0], T[y]["zero"][0])
        wrapper = "arm_depthwise_conv_wrapper_s8" if kind == "dw_" else "arm_convolve_wrapper_s8"
        multiple = f"{oc // c}, " if kind == "dw_" else ""
        text = self.channels(x, w, y, oc)
        text += f"    const cmsis_nn_{kind}conv_params params = {{{-T[x]['zero'][0]}, {T[y]['zero'][0]}, {multiple}{{{sw}, {sh_}}}, {{{pad[1]}, {pad[0]}}}, {{1, 1}}, {{{low}, {high}}}}};\n"
        text += self.dims("in", n, h, wd, c) + self.dims("filter", o, kh, kw, c if kind == "" else oc)
        text += self.dims("bias", 1, 1, 1, oc) + self.dims("out", n, oh, ow, oc)
        text += f"    const cmsis_nn_context context = {{scratch, {wrapper}_get_buffer_size(&params, &in, &filter, &out)}};\n"
        text += "    if (context.size > most) most = context.size;\n"
        text += f"    int status = {wrapper}(&context, &params, &quant, &in, t{x}, &filter, t{w}, &bias, t{b}, &out, t{y});\n"
        self.done(text)

    def conv(self, ins, outs, options):
        self.window("", ins, outs, options, 3)

    def depthwise(self, ins, outs, options):
        self.window("dw_", ins, outs, options, 4)

    def dense(self, ins, outs, options):
        T, (x, w, b), y = self.net.tensors, (*ins, -1)[:3], outs[0]
        (o, k), rows = T[w]["shape"], bytes_of(T[x]) // T[w]["shape"][1]
        low, high = limits(options.scalar(0, "b"), T[y]["scale"][0], T[y]["zero"][0])
        # TFLite multiplies float32
        product = struct.unpack("f", struct.pack("f", T[x]["scale"][0] * T[w]["scale"][0]))[0]
        m, s = multiplier(product / T[y]["scale"][0])
        text = f"    const cmsis_nn_fc_params params = {{{-T[x]['zero'][0]}, {-T[w]['zero'][0]}, {T[y]['zero'][0]}, {{{low}, {high}}}}};\n"
        text += f"    const cmsis_nn_per_tensor_quant_params quant = {{{m}, {s}}};\n"
        text += self.dims("in", rows, 1, 1, k) + self.dims("filter", k, 1, 1, o) + self.dims("bias", 1, 1, 1, o)
        text += self.dims("out", rows, 1, 1, o)
        size = "arm_fully_connected_s8_get_buffer_size(&filter)"
        text += f"    const cmsis_nn_context context = {{sums{self.layers}, {size}}};\n"
        text += "    if (context.size > most) most = context.size;\n"
        if b < 0:
            text += "    (void)bias;\n"
        bias = f"t{b}" if b >= 0 else "0"
        # with Helium it wants the sums of the weights' rows, which runtimes make once, before the first run
        sums = f"sums{self.layers}"
        self.head += f"static int32_t {sums}[{o}];\n"
        self.before += f"  arm_vector_sum_s8({sums}, {k}, {o}, t{w}, {-T[x]['zero'][0]}, {-T[w]['zero'][0]}, {bias});\n"
        text += f"    int status = arm_fully_connected_s8(&context, &params, &quant, &in, t{x}, &filter, t{w}, "
        text += f"&bias, {bias}, &out, t{y});\n"
        self.done(text)

    def avgpool(self, ins, outs, options):
        T, x, y = self.net.tensors, ins[0], outs[0]
        (n, h, w, c), (_, oh, ow, _) = T[x]["shape"], T[y]["shape"]
        sw, sh_, kw, kh = (options.scalar(i, "i") for i in (1, 2, 3, 4))
        same = options.scalar(0, "b") == 0
        pad = [out_size(h, kh, sh_, 1, same)[1], out_size(w, kw, sw, 1, same)[1]]
        text = f"    const cmsis_nn_pool_params params = {{{{{sw}, {sh_}}}, {{{pad[1]}, {pad[0]}}}, {{-128, 127}}}};\n"
        text += self.dims("in", n, h, w, c) + self.dims("filter", 1, kh, kw, 1) + self.dims("out", n, oh, ow, c)
        text += f"    const cmsis_nn_context context = {{scratch, arm_avgpool_s8_get_buffer_size({ow}, {c})}};\n"
        text += "    if (context.size > most) most = context.size;\n"
        text += f"    int status = arm_avgpool_s8(&context, &params, &in, t{x}, &filter, &out, t{y});\n"
        self.done(text)

    def add(self, ins, outs, options):
        T, (a, b), y = self.net.tensors, ins, outs[0]
        twice = 2 * max(T[a]["scale"][0], T[b]["scale"][0])
        one, two = (multiplier(T[t]["scale"][0] / twice) for t in (a, b))
        out = multiplier(twice / ((1 << 20) * T[y]["scale"][0]))
        low, high = limits(options.scalar(0, "b"), T[y]["scale"][0], T[y]["zero"][0])
        args = [f"t{a}", f"t{b}", -T[a]["zero"][0], *one, -T[b]["zero"][0], *two, 20, f"t{y}", T[y]["zero"][0], *out, low, high, bytes_of(T[y])]
        self.done(f"    int status = arm_elementwise_add_s8({', '.join(map(str, args))});\n")

    def softmax(self, ins, outs, options):
        T, x, y = self.net.tensors, ins[0], outs[0]
        m, s = multiplier(min(options.scalar(0, "f") * T[x]["scale"][0] * (1 << 26), (1 << 31) - 1.0))
        least = -math.floor(31 * (1 << 26) / (1 << s)) if s >= 0 else -128
        self.done(f"    int status = 0;\n    arm_softmax_s8(t{x}, 1, {bytes_of(T[x])}, {m}, {s}, {least}, t{y});\n")

    def reshape(self, ins, outs, options):
        self.body += f"  memcpy(t{outs[0]}, t{ins[0]}, {bytes_of(self.net.tensors[ins[0]])});\n"

    def text(self):
        x, y = self.net.inputs[0], self.net.outputs[0]
        n, k = bytes_of(self.net.tensors[x]), bytes_of(self.net.tensors[y])
        return f"""#include "check.h"
#include <string.h>
#include "arm_nnfunctions.h"
#include "vectors.h"
static uint64_t counted[{self.layers}], since;
static int64_t scratch[1 << 14];
static int most;
static void layer_done(int i) {{ counted[i] += count() - since; since = count(); }}
static void say_number(uint64_t n)
{{
  char text[24];
  int at = 23;
  text[at] = 0;
  do text[--at] = (char)('0' + n % 10);
  while (n /= 10);
  say(text + at);
}}
{self.head}
int check(void)
{{
  int bad = 0;
  memcpy(t{x}, input0, {n});
  if (sizeof *input0 == 1 && (uint8_t)-1 == (__typeof__(*input0))-1)
    for (int i = 0; i < {n}; i++) t{x}[i] ^= -128;
{self.before}
  uint64_t begin = count();
  since = begin;
{self.body}
  uint64_t end = count();
  for (int i = 0; i < {self.layers}; i++) say("layer "), say_number(counted[i]), say(" \\n");
  say("run "), say_number(end - begin), say("\\nscratch "), say_number((uint64_t)most), say("\\n");
  int differ = 0;
  for (int i = 0; i < {k}; i++) differ += (uint8_t)(t{y}[i] ^ {128 if self.net.tensors[y]["type"] == 3 else 0}) != ((const uint8_t *)expected0)[i];
  say("differ "), say_number((uint64_t)differ), say("\\ncheck 0 agrees bytes 0\\n");
  return bad;
}}
"""


def live_bytes(net):
    """Bytes of activations at the worst layer; the result of a reshape is its operand."""
    last, first = {}, {}
    for i, (_, ins, outs, _) in enumerate(net.ops):
        for t in ins:
            last[t] = i
        for t in outs:
            first[t] = i
    for t in net.inputs:
        first[t] = 0
    for t in net.outputs:
        last[t] = len(net.ops)
    for kind, ins, outs, _ in reversed(net.ops):
        if kind == "reshape":
            last[ins[0]] = max(last[ins[0]], last.pop(outs[0]))
            first.pop(outs[0])
    tensors = [t for t in first if not net.tensors[t]["data"]]
    return max(sum(bytes_of(net.tensors[t]) for t in tensors if first[t] <= i <= last.get(t, i))
               for i in range(len(net.ops)))  # fmt: skip


def cmsis_library(work, flags):
    folder = work / "cmsis-nn"
    library = work / f"cmsis-{re.search('cortex-[a-z0-9]+', flags)[0]}.a"
    if not library.exists():
        objects = work / library.stem
        objects.mkdir(exist_ok=True)
        kinds = ("Activation", "BasicMath", "Convolution", "FullyConnected", "NNSupport", "Pooling", "Softmax",
                 "Transpose", "Reshape", "Pad")  # fmt: skip
        for source in [s for k in kinds for s in sorted((folder / f"Source/{k}Functions").glob("*.c"))]:
            if source.stem.endswith(("f16", "f32")):
                continue
            sh("arm-none-eabi-gcc", *flags.split(), "-Ofast", "-ffunction-sections", "-w", "-I", folder / "Include", "-c", source, "-o", objects / f"{source.stem}.o")
        sh("arm-none-eabi-ar", "rcs", library, *sorted(objects.glob("*.o")))
    return library


def run_cmsis(work, name, path, project):
    """Instructions and RAM of CMSIS-NN's functions, and how many bytes of the output differ from the host's."""
    net = Network(path)
    folder = work / f"cmsis_{name}"
    shutil.rmtree(folder, True)
    folder.mkdir()
    for file in ("board.c", "board.ld", "check.h", "vectors.h"):
        shutil.copy(project / file, folder / file)
    (folder / "check.c").write_text(Program(net).text())
    make = (project / "Makefile").read_text()
    flags = re.search(r"^FLAGS = (.*?) -O2", make, re.M)[1]
    qemu = re.search(r"ok=0; (.*?) -nographic", make)[1]
    sh("arm-none-eabi-gcc", *flags.split(), "-O2", "-w", "-I", folder, "-I", work / "cmsis-nn/Include", folder / "check.c", folder / "board.c",
       cmsis_library(work, flags), "-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections", "-T", folder / "board.ld", "-lm", "-o", folder / "p.elf")  # fmt: skip
    said = run_qemu(folder, qemu)
    counts = [int(n) for n in re.findall(r"^layer (\d+)", said, re.M)]
    return {"instructions": sum(counts), "ram": live_bytes(net) + int(re.search(r"scratch (\d+)", said)[1]),
            "differ": int(re.search(r"differ (\d+)", said)[1]), "layers": counts}  # fmt: skip


def run_qemu(folder, qemu):
    subprocess.run(f"{qemu} -nographic -monitor none -serial null -chardev file,id=said,path=run.txt -semihosting-config "
                   "enable=on,target=native,chardev=said -kernel p.elf </dev/null", shell=True, cwd=folder, timeout=600)  # fmt: skip
    return (folder / "run.txt").read_text()


# ---- onnx2c ------------------------------------------------------------------------------------------------------------


def onnx2c(work):
    program = work / "onnx2c/onnx2c"
    if not program.exists():
        import onnx

        shutil.copy(pathlib.Path(onnx.__file__).with_name("onnx.proto"), work / "onnx2c")
        sh("sh", "build.sh", cwd=work / "onnx2c")
    return program


def run_onnx2c(work, name, path, project):
    folder = work / f"onnx2c_{name}"
    shutil.rmtree(folder, True)
    folder.mkdir()
    for file in ("board.c", "board.ld", "check.h", "vectors.h"):
        shutil.copy(project / file, folder / file)
    (folder / "net.c").write_text(sh(onnx2c(work), path))
    vectors = (project / "vectors.h").read_text()
    count = lambda kind: len(re.findall(rf"static const \w+ {kind}\d+\[", vectors))  # noqa: E731
    pointers = [f"(const void *)input{i}" for i in range(count("input"))] + [f"(void *)output{i}" for i in range(count("expected"))]
    (folder / "check.c").write_text(f"""#include "check.h"
#include "vectors.h"
void entry();
static void say_number(uint64_t n)
{{
  char text[24];
  int at = 23;
  text[at] = 0;
  do text[--at] = (char)('0' + n % 10);
  while (n /= 10);
  say(text + at);
}}
int check(void)
{{
  uint64_t begin = count();
  entry({', '.join(pointers)});
  uint64_t end = count();
  float worst = 0, largest = 0;
  for (unsigned i = 0; i < sizeof output0 / sizeof *output0; i++) {{
    float off = output0[i] - expected0[i], size = expected0[i];
    if (off < 0) off = -off;
    if (size < 0) size = -size;
    if (off > worst) worst = off;
    if (size > largest) largest = size;
  }}
  say("run "), say_number(end - begin), say("\\ndiffer "), say_number((uint64_t)(worst / largest * 1e6f)), say("\\n");
  return 0;
}}
""")
    make = (project / "Makefile").read_text()
    flags = re.search(r"^FLAGS = (.*?) -O2", make, re.M)[1]
    qemu = re.search(r"ok=0; (.*?) -nographic", make)[1]
    common = ["arm-none-eabi-gcc", *flags.split(), "-O2", "-w", "-fno-math-errno", "-ffp-contract=fast", "-ffunction-sections"]
    sh(*common, "-c", folder / "net.c", "-o", folder / "net.o")
    sh(*common, folder / "check.c", folder / "board.c", folder / "net.o", "-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections",
       "-T", folder / "board.ld", "-lm", "-o", folder / "p.elf")  # fmt: skip
    said = run_qemu(folder, qemu)
    static = sum(int(line.split()[1]) for line in sh("arm-none-eabi-size", "-A", folder / "net.o").split("\n") if re.match(r"\.(data|bss)", line))
    return {"instructions": int(re.search(r"run (\d+)", said)[1]), "ram": static, "differ": int(re.search(r"differ (\d+)", said)[1])}


# ---- Lathe, and the tables -----------------------------------------------------------------------------------------------


def with_less_ram(work, name, path, board, limit):
    """The same network kept to so many bytes of RAM; None: it is refused."""
    limits = ["--ram-limit", str(limit)]
    try_it = [LATHE, "micro", "new", path, "-o", work / f"less_{name}", "--board", board, *limits]
    if subprocess.run(try_it, capture_output=True).returncode:
        return None
    return run_lathe(work, name, path, board, limits)[1]


def cpu_of(project):
    return re.search(r"processor (\S+)", (project / "Makefile").read_text())[1]


def run_lathe(work, name, path, board, shapes=()):
    project = work / f"lathe_{name}"
    shutil.rmtree(project, True)
    sh(LATHE, "micro", "new", path, "-o", project, "--board", board, *shapes)
    said = json.loads(sh(LATHE, "micro", "run", project, "--json"))
    sizes = json.loads(sh(LATHE, "micro", "size", project, "--json"))
    cost = json.loads(sh(LATHE, "inspect", path, "--target", cpu_of(project), "--io", "workspace", "--json", *shapes))
    entry = cost["entries"][0]
    io = sum(p["bytes"] for p in entry["inputs"] + entry["outputs"])
    workspace = sum(p["bytes"] for p in cost["pools"])
    assert all(o["agrees"] for o in said["outputs"]), f"{name}: the outputs differ"
    return project, {"instructions": said["instructions"], "ram": workspace, "io": io, "flash": sizes["code"] + sizes["constants"],
                     "code": sizes["code"], "stack": sizes["stack"]}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=pathlib.Path, default=SHARED / "peers")
    parser.add_argument("--models", type=pathlib.Path, default=SHARED / "models/trained")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/lathe-bench-micro"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for peer in ("cmsis-nn", "onnx2c"):
        if not (options.work / peer).exists():
            sh("tar", "xf", options.peers / f"{peer}.tar.xz", "-C", options.work)
    print(f"| int8, {options.board} | instructions | CMSIS-NN | ratio | RAM | CMSIS-NN | flash | stack |\n|---|---|---|---|---|---|---|---|")
    logs = []
    for title, name in INT8.items():
        if options.only not in title:
            continue
        path = options.models / f"tflite/{name}.tflite"
        project, mine = run_lathe(options.work, name, path, options.board)
        peer = run_cmsis(options.work, name, path, project)
        ratio = peer["instructions"] / mine["instructions"]
        logs.append(math.log(ratio))
        note = "" if not peer["differ"] else f" ({peer['differ']} bytes of its output differ)"
        print(f"| {title} | {mine['instructions']} | {peer['instructions']}{note} | {ratio:.2f} | {mine['ram']} | {peer['ram']} | "
              f"{mine['flash']} | {mine['stack']} |", flush=True)  # fmt: skip
        if mine["ram"] > peer["ram"]:
            less = with_less_ram(options.work, name, path, options.board, peer["ram"])
            if less:
                print(f"| {title}, `--ram-limit {peer['ram']}` | {less['instructions']} | {peer['instructions']} | "
                      f"{peer['instructions'] / less['instructions']:.2f} | {less['ram']} | {peer['ram']} | {less['flash']} | "
                      f"{less['stack']} |", flush=True)  # fmt: skip
    if logs:
        print(f"\ngeometric mean of the ratios: {math.exp(sum(logs) / len(logs)):.2f}")
    print(f"\n| float, {options.board} | instructions | onnx2c | ratio | RAM | onnx2c | flash | stack |\n|---|---|---|---|---|---|---|---|")
    for title, (name, shape) in FLOAT.items():
        if options.only not in title:
            continue
        path = options.models / "onnx" / name if isinstance(name, str) else name
        shapes = ["--shape", shape] if shape else []
        key = re.sub(r"\W", "_", title)
        project, mine = run_lathe(options.work, key, path, options.board, shapes)
        peer = run_onnx2c(options.work, key, path, project)
        note = "" if peer["differ"] < 100 else " (its output differs)"
        print(f"| {title} | {mine['instructions']} | {peer['instructions']}{note} | {peer['instructions'] / mine['instructions']:.2f} | "
              f"{mine['ram']} | {peer['ram'] + mine['io']} | {mine['flash']} | {mine['stack']} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
