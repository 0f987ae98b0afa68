"""Models of PyTorch: exported programs, TorchScript modules, torch.compile.  PyTorch itself says what is right."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its models are not compared")

import lathe  # noqa: E402
from lathe import error, relay  # noqa: E402
from lathe.relay.frontend.pytorch import ROWS, graph  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
nn = torch.nn
Dim = torch.export.Dim


def executor(mod, params):
    return relay.build(mod, "llvm -mcpu=native", params=params)["default"]().executor


def outputs(ex, args):
    for i, a in enumerate(args):
        ex.set_input(i, a.numpy())
    ex.run()
    return [ex.get_output(i).numpy() for i in range(len(ex.outputs))]


def same(got, want):
    want = want if isinstance(want, (list, tuple)) else [want]
    for g, w in zip(got, want):
        assert g.shape == tuple(w.shape)
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-4, atol=1e-5)


def exported(model, args, dynamic=None):
    """The executor of an exported model, which agreed with it on these arguments."""
    model = model.eval()
    with torch.no_grad():
        program = torch.export.export(model, args, dynamic_shapes=dynamic)
        mod, params = relay.frontend.from_pytorch(program)
        ex = executor(mod, params)
        same(outputs(ex, args), model(*args))
    return ex


class Small(nn.Module):
    """Convolution, normalization, pooling, attention: what networks are made of."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        t = y.flatten(2).transpose(1, 2)
        t = t + self.attention(t, t, t, need_weights=False)[0]
        return self.out(nn.functional.gelu(t).mean(1)), y


def test_a_network():
    exported(Small(), (torch.randn(2, 3, 16, 16),))


def test_sizes_that_stay_open():
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    ids = torch.randint(0, 20, (2, 6))
    ex = exported(model, (ids,), ({0: Dim("b"), 1: Dim("n")},))
    other = torch.randint(0, 20, (5, 9))
    with torch.no_grad():
        same(outputs(ex, [other]), model(other))


class Sizes(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        y = torch.cat([x, torch.zeros(n, 2)], 1)
        return y.view(n * 2, -1), torch.arange(n), x[: n - 1], y.reshape(-1).expand(3, n * 6)


def test_arithmetic_on_sizes():
    ex = exported(Sizes(), (torch.randn(5, 4),), ({0: Dim("n", min=4)},))
    x = torch.randn(7, 4)
    same(outputs(ex, [x]), Sizes()(x))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])

    def forward(self, x):
        self.count.add_(x.sum(0))
        return x @ self.table


def test_buffers_that_change_come_behind_the_outputs():
    program = torch.export.export(Counter(), (torch.ones(3, 2),))
    mod, params = relay.frontend.from_pytorch(program)
    assert set(params) == {"count"}
    got = outputs(executor(mod, params), [torch.ones(3, 2)])
    np.testing.assert_allclose(got[0], np.ones((3, 2)) @ np.array([[1, 2], [3, 4]]))
    np.testing.assert_allclose(got[1], [3, 3])


def test_parameters_share_memory():
    model = nn.Linear(4, 3)
    _, params = relay.frontend.from_pytorch(torch.export.export(model, (torch.ones(2, 4),)))
    assert params["weight"].data_address == model.weight.data_ptr()


def test_names_of_inputs():
    program = torch.export.export(nn.Linear(4, 3), (torch.ones(2, 4),))
    mod, _ = relay.frontend.from_pytorch(program, [("data", (2, 4))])
    assert [p.name_hint for p in mod["main"].params] == ["data", "weight", "bias"]


class InPlace(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 1] = 5
        y[0].mul_(2)
        z = y.t()
        z.add_(1)
        return y, z.relu_()


def test_views_and_changes_in_place():
    exported(InPlace(), (torch.randn(3, 4),))


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))


def test_cond():
    ex = exported(Branch(), (torch.ones(3),))
    same(outputs(ex, [-torch.ones(3)]), -torch.ones(3) - 1)


class While(nn.Module):
    def forward(self, n, x):
        return torch.while_loop(lambda n, x: n.sum() < 5, lambda n, x: (n + 1, x * 2), (n, x))


def test_while_loop():
    ex = exported(While(), (torch.zeros(1, dtype=torch.int64), torch.ones(3)))
    same(outputs(ex, [torch.full((1,), 3, dtype=torch.int64), torch.ones(3)]), [torch.tensor([5]), torch.full((3,), 4.0)])


OPERATORS = {
    "floor_divide": lambda: (torch.floor_divide, torch.tensor([1.0, -7.0, 5.5]), torch.tensor([0.1, 2.0, -2.0])),
    "remainder": lambda: (torch.remainder, torch.tensor([-7, 7, 5]), torch.tensor([2, -2, 3])),
    "promotion": lambda: (torch.add, torch.tensor([1, 2]), torch.tensor([0.5, 1.5])),
    "true division": lambda: (torch.div, torch.tensor([1, 2]), torch.tensor([4, 3])),
    "index with two arrays": lambda: (
        lambda x, i, j: x[:, i, j],
        torch.randn(2, 3, 4),
        torch.tensor([0, -1]),
        torch.tensor([[1], [2]]),
    ),
    "index_put adds": lambda: (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        torch.zeros(4, 2),
        torch.tensor([1, 1, 3]),
        torch.ones(3, 2),
    ),
    "scatter_reduce": lambda: (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax", include_self=False),
        torch.full((3,), 9.0),
        torch.tensor([0, 0, 2]),
        torch.tensor([1.0, 4.0, -3.0]),
    ),
    "cummax": lambda: (lambda x: torch.cummax(x, 1)[0], torch.randn(2, 5)),
    "median": lambda: (lambda x: torch.median(x, 1)[0], torch.randn(3, 4)),
    "nearest": lambda: (lambda x: nn.functional.interpolate(x, scale_factor=1.7), torch.randn(1, 2, 5, 5)),
    "bicubic": lambda: (lambda x: nn.functional.interpolate(x, size=(7, 9), mode="bicubic"), torch.randn(1, 2, 5, 5)),
    "ceil_mode": lambda: (lambda x: nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True), torch.randn(1, 2, 8, 8)),
    "divisor and ceil_mode": lambda: (
        lambda x: nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=4),
        torch.randn(1, 2, 8, 8),
    ),
    "linspace": lambda: (lambda a, b: torch.linspace(a, b, 7), torch.tensor(-1.0), torch.tensor(3.5)),
    "lgamma": lambda: (torch.lgamma, torch.tensor([0.3, 4.5, -2.5, 30.0])),
    "unsigned bytes wrap": lambda: (lambda x: x.to(torch.uint8), torch.tensor([-1.0, 257.0, 3.7])),
    "gcd": lambda: (torch.gcd, torch.tensor([12, 0, 35]), torch.tensor([18, 5, 14])),
    "powers of integers": lambda: (torch.pow, torch.tensor([[3], [-2]]), torch.tensor([0, 5, 39])),
    "polygamma": lambda: (lambda x: torch.polygamma(2, x), torch.tensor([0.3, 1.0, 40.0, -2.5])),
    "zeta": lambda: (torch.special.zeta, torch.tensor([1.5, 2.0, 3.0, 1.0]), torch.tensor([0.2, 9.0, -1.5, 2.0])),
    "polynomials of several orders": lambda: (
        lambda x, n: torch.special.hermite_polynomial_h(x, n) + torch.special.shifted_chebyshev_polynomial_v(x, n),
        torch.tensor([0.5, -0.2, 1.3, 0.7, 0.1]),
        torch.tensor([0, 1, 2, 5, -1]),
    ),
    "index_reduce": lambda: (
        lambda x, i, v: x.index_reduce(1, i, v, "mean", include_self=False),
        torch.ones(2, 3),
        torch.tensor([2, 0, 2]),
        torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, -1.0]]),
    ),
    "put": lambda: (
        lambda x, i, v: x.put(i, v, accumulate=True),
        torch.zeros(2, 3),
        torch.tensor([1, -1, 1]),
        torch.tensor([1.0, 2.0, 4.0]),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    torch.manual_seed(0)
    f, *args = OPERATORS[name]()

    class Call(nn.Module):
        def forward(self, *a):
            return f(*a)

    exported(Call(), tuple(args))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent(kind):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = getattr(nn, kind)(5, 6, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x):
            y, state = self.net(x)
            return (y, *(state if isinstance(state, tuple) else (state,)))

    exported(Wrapped(), (torch.randn(3, 7, 5),))


def test_operators_without_a_row_are_named_at_once():
    class Absent(nn.Module):
        def forward(self, x):
            return torch.geqrf(x)[0], torch.ormqr(x, x[0], x)

    program = torch.export.export(Absent(), (torch.randn(3, 3),))
    with pytest.raises(error.UnsupportedError) as e:
        relay.frontend.from_pytorch(program)
    assert (
        "aten.geqrf.default" in str(e.value)
        and "aten.ormqr.default" in str(e.value)
        and "torch.compile" in str(e.value)
    )


def test_custom_convert_map():
    class Erf(nn.Module):
        def forward(self, x):
            return torch.erf(x)

    program = torch.export.export(Erf(), (torch.ones(3),))
    mod, params = relay.frontend.from_pytorch(program, custom_convert_map={"aten::erf": lambda g, x: relay.negative(x)})
    np.testing.assert_array_equal(outputs(executor(mod, params), [torch.ones(3)])[0], -np.ones(3))


def test_rows_have_names_that_pytorch_knows():
    known = set(dir(torch.ops.aten)) | {
        s.name.split("::")[1] for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")
    }
    assert [n for n in ROWS if n.startswith("aten.") and n.split(".")[1] not in known] == []


# ---- TorchScript


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if bool(x.sum() > 0):
            y = self.linear(x)
        else:
            y = x * 2
        return y


class Loop(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for i in range(x.size(0)):
            y[i] = x[i] * float(i)
        return y


def test_traced():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    x = torch.randn(5, 4)
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(model, x), [("x", (5, 4))])
    assert set(params) == {"0.weight", "0.bias"}
    with torch.no_grad():
        same(outputs(executor(mod, params), [x]), model(x))


def test_scripted_branch():
    model = torch.jit.script(Scripted().eval())
    ex = executor(*relay.frontend.from_pytorch(model, [("x", (3, 4))]))
    with torch.no_grad():
        for x in (torch.ones(3, 4), -torch.ones(3, 4)):
            same(outputs(ex, [x]), model(x))


def test_scripted_loop():
    x = torch.randn(3, 4)
    model = torch.jit.script(Loop())
    ex = executor(*relay.frontend.from_pytorch(model, [("x", ((3, 4), "float32"))]))
    same(outputs(ex, [x]), model(x))


def test_any_size():
    model = torch.jit.trace(nn.Linear(4, 3).eval(), torch.randn(5, 4))
    ex = executor(*relay.frontend.from_pytorch(model, [("x", (relay.Any(), 4))]))
    x = torch.randn(9, 4)
    with torch.no_grad():
        same(outputs(ex, [x]), model(x))


def test_a_module_needs_shapes():
    with pytest.raises(error.ArgumentError, match="input_infos"):
        relay.frontend.from_pytorch(torch.jit.trace(nn.Linear(4, 3), torch.ones(1, 4)), None)


# ---- torch.compile


@pytest.fixture
def compiled():
    import lathe.contrib.torch  # noqa: F401 (registers the backend)

    torch._dynamo.reset()
    return lambda f: torch.compile(f, backend="lathe", options={"cache": False})


KEPT = """
import logging, sys
import torch
import lathe.contrib.torch
logging.basicConfig(level=logging.INFO, format="%(message)s")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
if sys.argv[1:] == ["other"]:
    model[0].bias.data[0] += 1
with torch.no_grad():
    x = torch.ones(2, 4)
    torch.testing.assert_close(torch.compile(model, backend="lathe")(x), model(x))
"""


def test_compiled_graphs_are_kept_between_processes(tmp_path):
    """The second process compiles nothing; other weights, and a folder that others may write, do."""
    place = tmp_path / "kept"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LATHE_CACHE": str(place)}

    def run(*args):
        done = subprocess.run([sys.executable, "-c", KEPT, *args], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "from the cache" not in run() and len(list(place.glob("*.so"))) == 1
    assert "from the cache" in run() and len(list(place.glob("*.so"))) == 1
    assert "from the cache" not in run("other") and len(list(place.glob("*.so"))) == 2
    for p in place.glob("*.so"):
        p.write_bytes(b"no library")
    assert "made anew" in run() and "from the cache" in run()
    place.chmod(0o777)
    assert "others may write" in run()


def test_compile(compiled):
    model = Small().eval()
    f = compiled(model)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        for got, want in zip(f(x), model(x)):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_compile_with_tensors_made_in_the_function(compiled):
    f = lambda x: (x - torch.as_tensor([0.5, 1.0, 2.0])) / torch.tensor(4.0) + torch.arange(0.5, 2.0, 0.5)  # noqa: E731
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(f)(x), f(x))


def test_compile_again_only_for_sizes_that_matter(compiled):
    model = nn.Linear(4, 3).eval()
    f = compiled(model)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with torch.no_grad():
        for n in (2, 3, 5, 8, 13):
            x = torch.randn(n, 4)
            torch.testing.assert_close(f(x), model(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 2


def test_compile_sees_weights_that_change(compiled):
    model = nn.Linear(4, 3).eval()
    f, x = compiled(model), torch.randn(2, 4)
    with torch.no_grad():
        f(x)
        model.weight.mul_(2)
        torch.testing.assert_close(f(x), model(x))


def test_compile_with_a_buffer_that_counts(compiled):
    model = Counter().eval()
    f = compiled(model)
    with torch.no_grad():
        for _ in range(4):
            f(torch.ones(3, 2))
    torch.testing.assert_close(model.count, torch.full((2,), 12.0))


def test_compile_changes_in_place(compiled):
    def change(x, y):
        x.add_(1)
        x[0].mul_(y)
        return x.t(), x

    x = torch.randn(3, 3)
    mine, y = x.clone(), torch.tensor(3.0)
    with torch.no_grad():
        want, got = change(x, y), compiled(change)(mine, y)
    torch.testing.assert_close(mine, x)
    assert got[1] is mine
    torch.testing.assert_close(got[0], want[0])


def test_compile_leaves_operators_to_pytorch(compiled, caplog):
    def mixed(x):
        return torch.linalg.eigvalsh(x @ x.t()).relu() + 1

    x = torch.randn(4, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="lathe.torch"):
        torch.testing.assert_close(compiled(mixed)(x), mixed(x), rtol=1e-4, atol=1e-4)
    assert any("left to PyTorch: aten._linalg_eigh" in r.getMessage() for r in caplog.records)


def test_compile_leaves_gradients_to_pytorch(compiled):
    model = nn.Linear(4, 1)
    with pytest.warns(UserWarning, match="gradients"):
        compiled(model)(torch.ones(2, 4)).sum().backward()
    np.testing.assert_allclose(model.weight.grad.numpy(), np.full((1, 4), 2.0))


# ---- files


def test_command_line(tmp_path):
    model = nn.Linear(4, 3).eval()
    path, out = str(tmp_path / "net.pt2"), str(tmp_path / "net.so")
    torch.export.save(torch.export.export(model, (torch.ones(2, 4),)), path)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = os.path.join(os.environ.get("LATHE_LIBRARY_PATH", os.path.join(root, "build")), "lathe")
    env = {**os.environ, "LATHE_PYTHON": sys.executable, "PYTHONPATH": os.path.join(root, "python")}
    done = subprocess.run([program, "compile", path, "-o", out], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ex = lathe.runtime.load_module(out)["default"]().executor
    with torch.no_grad():
        same(outputs(ex, [torch.ones(2, 4)]), model(torch.ones(2, 4)))


def test_dtypes():
    assert graph.dtype_name(torch.bfloat16) == "bfloat16"
    with pytest.raises(error.UnsupportedError, match="complex64"):
        graph.dtype_name(torch.complex64)
