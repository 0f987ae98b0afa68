"""Quantized models of PyTorch: PT2E's operators and models, fake quantization, quantized TorchScript modules."""

import copy
import importlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its models are not compared")

from lathe import error, relay  # noqa: E402

importlib.import_module("torch.ao.quantization.fx._decomposed")
pytestmark = pytest.mark.filterwarnings("ignore")
nn = torch.nn
q = torch.ops.quantized_decomposed


def imported(model, args):
    """The module of an exported model, with its parameters in it."""
    with torch.no_grad():
        program = torch.export.export(model.eval(), args)
    mod, params = relay.frontend.from_pytorch(program)
    return relay.build_module.as_module(mod, params)


def outputs(mod, args):
    ex = relay.build(mod, "llvm -mcpu=native")["default"]().executor
    for i, a in enumerate(args):
        ex.set_input(i, a.numpy())
    ex.run()
    return [ex.get_output(i).numpy() for i in range(len(ex.outputs))]


def operators(mod):
    found = set()
    relay.analysis.post_order_visit(
        mod["main"], lambda e: found.add(getattr(e.op, "name", "")) if isinstance(e, relay.Call) else None
    )
    return found


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


i8, u8, i32 = torch.int8, torch.uint8, torch.int32
SCALES, ZEROS = torch.tensor([0.1, 0.05, 0.2]), torch.tensor([3, -4, 0])
TOKENS, PLACES = torch.tensor([[0.1], [0.03]]), torch.tensor([[5], [-3]])
GROUPS, HALVES = torch.tensor([[0.1, 0.2], [0.03, 0.4]]), torch.tensor([[5, 1], [-3, 0]])
WAYS = {
    "tensor": lambda x: q.quantize_per_tensor(x, 0.05, 3, -128, 127, i8),
    "narrow": lambda x: q.quantize_per_tensor(x, 0.05, 100, 0, 127, u8),
    "wide": lambda x: q.quantize_per_tensor(x, 0.001, 0, -(2**31), 2**31 - 1, i32),
    "back": lambda x: q.dequantize_per_tensor((x * 9).to(i8), 0.05, 3, -128, 127, i8),
    "numbers": lambda x: q.quantize_per_tensor.tensor(x, x[0, 0].abs(), torch.tensor(4), -128, 127, i8),
    "channels": lambda x: q.quantize_per_channel(x, SCALES, ZEROS, 1, -127, 127, i8),
    "channels back": lambda x: q.dequantize_per_channel((x * 9).to(i8), SCALES, ZEROS, 1, -128, 127, i8),
    "symmetric": lambda x: q.dequantize_per_channel((x * 9).to(i8), SCALES, None, 1, -128, 127, i8),
    "choice": lambda x: q.choose_qparams(x, -128, 127, 1e-6, i8),
    "choice of two sides": lambda x: q.choose_qparams_symmetric(x, -127, 127, 1e-6, i8),
    "tokens": lambda x: q.quantize_per_token(x, TOKENS, PLACES, -128, 127, i8),
    "tokens back": lambda x: q.dequantize_per_token(x.to(i8), TOKENS, PLACES, -128, 127, i8, torch.float32),
    "groups": lambda x: q.quantize_per_channel_group(x.repeat(1, 4), GROUPS, HALVES, -8, 7, i8, 6),
    "groups back": lambda x: q.dequantize_per_channel_group(
        x.repeat(1, 4).to(i8), GROUPS, HALVES, -8, 7, i8, 6, torch.float32
    ),
    "fake": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 5, 0, 255),
    "fake of channels": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.to(i32), 1, -128, 127),
    "fake by tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.1), torch.tensor(5, dtype=i32), 0, 255
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_operators(way):
    torch.manual_seed(3)
    x = (torch.randn(2, 3) * 3,)
    want = WAYS[way](*x)
    got = outputs(imported(Function(WAYS[way]), x), x)
    for g, w in zip(got, want if isinstance(want, tuple) else [want]):
        assert str(g.dtype) == str(w.dtype).rsplit(".", maxsplit=1)[-1] and g.shape == tuple(w.shape)
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-6, atol=1e-6)


def test_what_is_refused():
    x = (torch.randn(2, 3),)
    least = lambda x: q.quantize_per_tensor.tensor2(  # noqa: E731
        x, torch.tensor(0.1), torch.tensor(1), (x[0, 0] * 0).to(torch.int64), torch.tensor(9), i8
    )
    with pytest.raises(error.UnsupportedError, match="limits that are known only at run time"):
        imported(Function(least), x)


# ---- whole models


class Small(nn.Module):
    """Convolutions with a residual sum, pooling, a product."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(x + self.second(x))
        return self.out(torch.nn.functional.adaptive_avg_pool2d(torch.max_pool2d(x, 2), 1).flatten(1))


def pt2e():
    """prepare, convert and a quantizer: of torchao, or of PyTorch itself."""
    places = [
        ("torchao.quantization.pt2e.quantize_pt2e", "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"),
        ("torch.ao.quantization.quantize_pt2e", "torch.ao.quantization.quantizer.x86_inductor_quantizer"),
    ]
    for how, quantizer in places:
        try:
            steps, of = importlib.import_module(how), importlib.import_module(quantizer)
        except ImportError:
            continue
        made = of.X86InductorQuantizer().set_global(of.get_default_x86_inductor_quantization_config())
        return steps.prepare_pt2e, steps.convert_pt2e, made
    pytest.skip("neither torchao nor a PyTorch with PT2E is installed")


def close(got, want, quantum):
    """Within a few steps of the quantization; most within one."""
    apart = np.abs(got - want) / quantum
    assert apart.max() < 4 and np.mean(apart < 1.01) > 0.9, apart


def test_a_pt2e_model_runs_in_integers():
    prepare, convert, quantizer = pt2e()
    torch.manual_seed(0)
    model, x = Small().eval(), (torch.randn(1, 3, 16, 16),)
    with torch.no_grad():
        program = torch.export.export(model, x)
        ready = prepare(program.module(), quantizer)
        for _ in range(4):
            ready(torch.randn(1, 3, 16, 16))
        quantized = convert(ready)
        want = quantized(*x).numpy()
        mod = imported_graph(quantized, x)
    assert {"qnn.quantize", "qnn.dequantize"} <= operators(mod)
    integers = operators(relay.transform.FakeQuantizationToInteger()(mod))
    assert "qnn.conv2d" in integers and "nn.conv2d" not in integers
    close(outputs(mod, x)[0], want, np.abs(want).max() / 60)


def imported_graph(model, args):
    """The same of a graph module, which has no eval of its own."""
    mod, params = relay.frontend.from_pytorch(torch.export.export(model, args))
    return relay.build_module.as_module(mod, params)


# ---- quantized modules, through TorchScript


def quantized(model, x):
    """Eager quantization: QuantStub, modules of torch.ao.nn.quantized, DeQuantStub."""
    engines = [e for e in ("qnnpack", "onednn", "fbgemm") if e in torch.backends.quantized.supported_engines]
    if not engines:
        pytest.skip("this PyTorch has no kernels for quantized tensors")
    torch.backends.quantized.engine = engines[0]
    model = copy.deepcopy(model).eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig(engines[0])
    ready = torch.ao.quantization.prepare(model)
    ready(x)
    return torch.ao.quantization.convert(ready)


class Eager(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv = torch.ao.nn.intrinsic.ConvReLU2d(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.deep = nn.Conv2d(8, 8, 3, groups=8, stride=2)
        self.pool, self.out = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)
        self.sum = torch.ao.nn.quantized.FloatFunctional()
        self.cat = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        x = self.conv(self.quant(x))
        y = self.deep(torch.nn.functional.max_pool2d(x, 2, 1))
        y = self.sum.add_relu(y, y)
        y = self.cat.cat([y, torch.relu(y)], 1)
        return self.dequant(self.out(torch.flatten(self.pool(y), 1)))


def test_a_quantized_torchscript_module():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        model = quantized(Eager(), x)
        want = model(x).numpy()
        traced = torch.jit.trace(model, x)
    mod, params = relay.frontend.from_pytorch(traced, [("x", (2, 3, 12, 12))])
    mod = relay.build_module.as_module(mod, params)
    integers = operators(relay.transform.FakeQuantizationToInteger()(mod))
    assert {"qnn.conv2d", "qnn.dense"} <= integers and "nn.conv2d" not in integers
    close(outputs(mod, (x,))[0], want, np.abs(want).max() / 60)


def test_operators_of_quantized_tensors_that_have_no_row():
    class Odd(nn.Module):
        def forward(self, x):
            y = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
            return torch.dequantize(torch.flip(y, [0]))

    traced = torch.jit.trace(Odd(), torch.randn(2, 3))
    with pytest.raises(error.UnsupportedError, match="aten::flip of quantized tensors"):
        relay.frontend.from_pytorch(traced, [("x", (2, 3))])
