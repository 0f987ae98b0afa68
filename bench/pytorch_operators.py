"""PyTorch's own database of operators against Lathe.

    python bench/pytorch_operators.py [--match add,sum] [--dtypes float32,int64,bool] [--samples 4] [--list]

Every operator of torch.testing's op_db that makes sense when a model is used is traced on its sample inputs, converted
by the table of relay.frontend.pytorch, compiled, run, and compared with PyTorch.  Printed are a count and, with
--list, every operator that is not passed with its reason.  `wrong` must stay empty."""

from __future__ import annotations

import argparse
import pathlib
import sys
import warnings
from typing import Any, Dict, List, Tuple

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch.fx.experimental.proxy_tensor import make_fx

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / "python")]

import lathe
from lathe import error, relay
from lathe.relay.frontend.pytorch import decompose, exported, graph

# What has no meaning, or no one right answer, when a model is used.
LEFT_OUT = {
    "needs CUDA": ("jiterator",),
    "random": (
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "rand",
        "rand_like",
        "randint",
        "randn",
        "uniform",
        "dropout",
        "rrelu",
        "poisson",
        "fractional_max_pool",
    ),
    "memory that nobody wrote": ("empty", "new_empty"),
    "complex numbers": (
        "complex",
        "fft.",
        "stft",
        "istft",
        "view_as_real",
        "view_as_complex",
        "polar",
        "linalg.eig",
        "isreal",
        "chalf",
        "cfloat",
        "cdouble",
        "angle",
    ),
    "sparse, nested, jagged or quantized tensors": ("sparse", "to_sparse", "jagged", "segment_reduce", "_segment"),
    "training": ("_batch_norm_with_update", "native_dropout", "ctc_loss", "backward"),
    "gives no tensor": (
        "equal",
        "is_nonzero",
        "item",
        "allclose",
        "result_type",
        "can_cast",
        "tolist",
        "unbind_copy_list",
    ),
}


def left_out(name: str) -> str:
    """Why an operator is not counted; nothing if it is."""
    for why, words in LEFT_OUT.items():
        for w in words:
            if (
                name == w
                or (w.endswith(".") and name.startswith(w))
                or (len(w) > 4 and w in name and why not in ("gives no tensor",))
            ):
                return why
    return ""


def tensors(x: Any) -> List[torch.Tensor]:
    """The tensors in what was given, in order."""
    return [t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def trace(op: Any, sample: Any, rows: Dict[Any, Any]) -> Tuple[Any, List[torch.Tensor]]:
    """The graph of an operator on a sample, and the tensors that it takes."""
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    where = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
    given = [leaves[i].detach().contiguous() for i in where]

    def run(*values: torch.Tensor) -> Any:
        all_leaves = list(leaves)
        for i, v in zip(where, values):
            all_leaves[i] = v
        args, kwargs = pytree.tree_unflatten(all_leaves, spec)
        return tuple(tensors(op(*args, **kwargs)))

    with torch.no_grad():
        traced = make_fx(run, decomposition_table=rows, tracing_mode="fake")(*given)
        pure = torch.func.functionalize(traced, remove="mutations_and_views")
        made = make_fx(pure, decomposition_table=rows, tracing_mode="fake")(*given)
    for node in list(made.graph.nodes):  # what is written back to inputs at the end
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
            node.replace_all_uses_with(node.args[1])
            made.graph.erase_node(node)
    return made, given


def expected(op: Any, sample: Any) -> List[torch.Tensor]:
    """What PyTorch gives."""

    def fresh(v: Any) -> Any:
        return v.detach().clone() if isinstance(v, torch.Tensor) else v

    args, kwargs = pytree.tree_map(fresh, ((sample.input, *sample.args), sample.kwargs))
    with torch.no_grad():
        return [t.clone() for t in tensors(op(*args, **kwargs))]


def converted(gm: Any, given: List[torch.Tensor], prefix: str) -> Tuple[List[Any], List[Any]]:
    """Variables and results of a traced graph."""
    exported.refuse_all(graph.unsupported(gm))
    params = [
        relay.var(f"{prefix}_{i}", relay.TensorType(list(t.shape), graph.dtype_name(t.dtype)))
        for i, t in enumerate(given)
    ]

    def attribute(name: str) -> Any:
        found = getattr(gm, name)
        return found if hasattr(found, "graph") else exported.tensor_const(found)

    values = graph.Graph().run(gm.graph, params, attribute)
    return params, [v for v in values if v is not None]


# Which of several equal elements is meant is open: the values must agree, and those at the places that are given.
TIES = ("kthvalue", "topk", "median", "nanmedian", "mode", "sort", "argsort", "msort")


def places_of(values: torch.Tensor, places: torch.Tensor, sample: Any) -> bool:
    """Are these places of the input where those values stand?"""
    x = sample.input
    if places.dtype != torch.int64 or not x.dim():
        return places.numel() == 0 or bool((places == 0).all()) or not x.dim()
    for axis in range(x.dim()):
        p = places if places.dim() == x.dim() else places.unsqueeze(axis)
        v = values if values.dim() == x.dim() else values.unsqueeze(axis)
        if all(p.shape[i] <= x.shape[i] for i in range(x.dim()) if i != axis) and bool((p < x.shape[axis]).all()):
            if torch.equal(torch.gather(x, axis, p), v):
                return True
    return False


def same_order(sample: Any, got: torch.Tensor, want: torch.Tensor) -> bool:
    """Do both orders of the input's elements give the same elements?"""
    x = sample.input
    axes = range(x.dim()) if (got < max(x.shape, default=1)).all() else ()
    return any(
        bool((got < x.shape[a]).all()) and torch.equal(torch.gather(x, a, got), torch.gather(x, a, want)) for a in axes
    )


def compare(op: Any, samples: List[Any], rows: Dict[Any, Any]) -> Tuple[str, str]:
    """passed, refused or wrong, with a reason, for some samples of one operator, compiled together."""
    wants, params, outs, inputs, owners = [], [], [], [], []
    for k, sample in enumerate(samples):
        want = expected(op, sample)
        if any(t.is_complex() for t in want) or not want:
            continue
        try:
            gm, given = trace(op, sample, rows)
        except Exception as e:  # noqa: BLE001 (PyTorch itself cannot trace it)
            return (
                "refused",
                f"PyTorch does not trace it: {type(e).__name__}: {str(e).splitlines()[0][:100] if str(e) else ''}",
            )
        try:
            p, o = converted(gm, given, f"s{k}")
        except error.UnsupportedError as e:
            return "refused", str(e)[:200]
        if len(o) != len(want):
            return "wrong", f"{len(o)} results instead of {len(want)}"
        if op.name in TIES and len(want) == 2:
            owners += [(None, sample), (len(wants), sample)]
        elif op.name == "argsort":
            owners.append((-1, sample))
        else:
            owners += [(None, sample)] * len(want)
        wants += want
        params += p
        outs += o
        inputs += given
    if not wants:
        return "none", ""
    try:
        lib = relay.build(lathe.IRModule.from_expr(relay.Function(params, relay.Tuple(outs))), "llvm -mcpu=native")
    except error.UnsupportedError as e:
        return "refused", str(e)[:200]
    ex = lib["default"]().executor
    for i, t in enumerate(inputs):
        ex.set_input(i, t.numpy())
    ex.run()
    for i, want in enumerate(wants):
        found = ex.get_output(i)
        got = torch.from_dlpack(found) if want.dtype == torch.bfloat16 else torch.from_numpy(np.array(found.numpy()))
        first, sample = owners[i]
        if first == -1 and got.shape == want.shape and same_order(sample, got, want):
            continue
        if first not in (None, -1) and got.shape == want.shape and places_of(wants[first], got, sample):
            continue
        try:
            loose = want.dtype.is_floating_point
            torch.testing.assert_close(got, want, rtol=1e-3 if loose else 0, atol=1e-4 if loose else 0, equal_nan=True)
        except AssertionError as e:
            return "wrong", " ".join(str(e).split())[:200]
    return "passed", ""


def one(op: Any, dtype: torch.dtype, count: int, rows: Dict[Any, Any]) -> Tuple[str, str]:
    """The result for an operator and a dtype."""
    try:
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception as e:  # noqa: BLE001
        return "none", f"no samples: {e}"
    if not samples:
        return "none", ""
    step = max(len(samples) // count, 1)
    picked = samples[::step][:count]
    try:
        return compare(op, picked, rows)
    except error.UnsupportedError as e:
        return "refused", str(e)[:200]
    except Exception as e:  # noqa: BLE001
        return "wrong", f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"


def main() -> int:
    """Runs the sweep."""
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--part", default="1/1", help="every Nth operator, from the Kth: K/N")
    parser.add_argument("--after", default="", help="goes on behind the operator of this name")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="names each operator on standard error before it runs")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    words = [w for w in args.match.split(",") if w]
    k, n = (int(x) for x in args.part.split("/"))
    results: Dict[str, List[Tuple[str, str, str]]] = {}
    outside: Dict[str, int] = {}
    rows = decompose.decompositions()
    waiting = args.after
    for op in op_db[k - 1 :: n]:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if words and not any(w == name or w == op.name for w in words):
            continue
        if waiting:
            waiting = "" if name == waiting else waiting
            continue
        why = left_out(op.name)
        if why:
            outside[why] = outside.get(why, 0) + 1
            continue
        for d in args.dtypes.split(","):
            dtype = getattr(torch, d)
            if dtype not in op.dtypes:
                continue
            torch.manual_seed(0)
            if args.verbose:
                print(name, d, file=sys.stderr, flush=True)
            state, reason = one(op, dtype, args.samples, rows)
            if state == "none":
                continue
            results.setdefault(name, []).append((d, state, reason))
            if args.list and state != "passed":
                print(f"{state:8} {name} {d}: {reason}", flush=True)
    counts = {"passed": 0, "refused": 0, "wrong": 0}
    for states in results.values():
        kinds = {s for _, s, _ in states}
        counts["wrong" if "wrong" in kinds else "refused" if "refused" in kinds else "passed"] += 1
    total = sum(counts.values())
    print(
        f"operators {total}: "
        + ", ".join(f"{k} {v}" for k, v in counts.items())
        + f" ({100 * counts['passed'] / max(total, 1):.1f} % passed); PyTorch {torch.__version__}"
    )
    for why, n_out in sorted(outside.items()):
        print(f"  not counted: {n_out} ({why})")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
