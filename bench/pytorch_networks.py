#!/usr/bin/env python3
"""Networks of torchvision and transformers through torch.export against PyTorch itself.

    bench/pytorch_networks.py torchvision [--match REGEX] [--most 100]
    bench/pytorch_networks.py transformers [--match REGEX]

torchvision: every network that its registry lists, with random weights, on small images.  transformers: architectures
made from their configurations at small sizes.  Each is exported, imported, compiled, run, and its outputs compared with
PyTorch's: the largest difference over the largest value is printed, and must be below 1e-3.  --most leaves out networks
of more than so many million parameters.

Detection networks branch on what they find, which torch.export refuses: they go through torch.compile(backend="lathe"),
which compiles what lies between the branches.  In float64, since with random weights a change of one in the last
place of a float32 makes PyTorch itself find other boxes."""

import argparse
import pathlib
import re
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.utils._pytree as pytree  # noqa: E402

from lathe import relay  # noqa: E402

LIMIT = 1e-3


class Differs(Exception):
    """A result that is not PyTorch's."""


def leaves(x):
    """The tensors in a result, in order."""
    return [t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def settle(model, args):
    """Normalizations get the statistics of one run, so that random weights give values of every size."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if norms and args and all(isinstance(a, torch.Tensor) for a in args):
        for m in norms:
            m.momentum = 1.0
        model.eval()
        for m in norms:
            m.train()
        with torch.no_grad():
            model(*[torch.cat([a, a.roll(7, -1)]) for a in args])


def agree(model, args, kwargs=None):
    """The largest difference over the largest value, with the number of outputs and seconds of each step."""
    kwargs = kwargs or {}
    settle(model, args)
    model = model.eval()
    with torch.no_grad():
        want = leaves(model(*args, **kwargs))
        t0 = time.time()
        program = torch.export.export(model, args, kwargs, strict=False)
    t1 = time.time()
    mod, params = relay.frontend.from_pytorch(program)
    t2 = time.time()
    lib = relay.build(mod, "llvm -mcpu=native", params=params)
    t3 = time.time()
    ex = lib["default"]().executor
    given = leaves((args, kwargs))
    for i, t in enumerate(given):
        ex.set_input(i, t.contiguous().numpy())
    ex.run()
    worst = largest_difference([ex.get_output(i).numpy() for i in range(len(want))], want)
    return worst, len(want), (t1 - t0, t2 - t1, t3 - t2)


def agree_compiled(model, args):
    """The same through torch.compile."""
    import lathe.contrib.torch  # noqa: F401 (registers the backend)

    model = model.double()
    getattr(model, "roi_heads", model).score_thresh = 1e-3  # random weights are sure of nothing
    args = ([t.double() for t in args[0]],)
    model = model.eval()
    with torch.no_grad():
        want = leaves(model(*args))
        if not want[0].numel():
            raise Differs("PyTorch finds no box, so that nothing can be compared")
        t0 = time.time()
        torch._dynamo.reset()
        got = leaves(torch.compile(model, backend="lathe", options={"cache": False})(*args))
    if not torch._dynamo.utils.counters["stats"]["unique_graphs"]:
        raise Differs("nothing of it was compiled")
    return largest_difference([t.numpy() for t in got], want), len(want), (0, 0, time.time() - t0)


def largest_difference(values, want):
    """Over the largest value; raises where integers, sizes, or places of infinities differ."""
    worst = 0.0
    for i, (got, w) in enumerate(zip(values, want)):
        w = w.numpy()
        if got.shape != w.shape:
            raise Differs(f"output {i} has shape {got.shape}, PyTorch's {w.shape}")
        if not w.size:
            continue
        if w.dtype.kind in "iub":
            if not np.array_equal(got, w):
                raise Differs(f"output {i}: {np.mean(got != w):.3f} of its integers differ")
            continue
        g, w = got.astype("float64"), w.astype("float64")
        if not np.array_equal(np.isfinite(g), np.isfinite(w)):
            raise Differs(f"output {i}: infinities or NaN at other places")
        fine = np.isfinite(w)
        if fine.any():
            worst = max(worst, float(np.abs(g - w)[fine].max() / max(np.abs(w[fine]).max(), 1e-6)))
    if worst > LIMIT:
        raise Differs(f"differs by {worst:.1e} of the largest value")
    return worst


# ---- torchvision


def torchvision_cases(pattern, most):
    """(family, name, maker of (model, arguments))."""
    import torchvision
    from torchvision import models

    torch.nn.init.trunc_normal_ = lambda t, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None: torch.nn.init.normal_(
        t, mean, std
    )
    del torchvision
    for name in models.list_models():
        if not re.search(pattern, name):
            continue
        module = models.get_model_builder(name).__module__
        family = next(
            (f for f in ("segmentation", "detection", "video", "optical_flow", "quantization") if f in module),
            "classification",
        )
        weights = models.get_model_weights(name)
        size = next(iter(weights)).meta.get("num_params", 0) / 1e6 if len(weights) else 0
        if size > most:
            continue
        yield family, name, lambda name=name, family=family: torchvision_model(name, family)


def torchvision_model(name, family):
    """A network and what it takes."""
    from torchvision import models

    torch.manual_seed(0)
    options = {}
    if family in ("segmentation", "detection", "quantization"):
        options = {"weights": None}
        if family != "quantization":
            options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    model = models.get_model(name, **options)
    if family == "video":
        frames, side = (16, 224) if name.startswith(("mvit", "s3d")) else (8, 64)
        return model, (torch.randn(1, 3, frames, side, side),)
    if family == "optical_flow":
        return model, (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128))
    if family == "detection":
        return model, ([torch.rand(3, 128, 128)],)
    fixed = {"inception_v3": 96, "vit_h_14": 224}
    side = fixed.get(name, 224 if name.startswith(("vit", "maxvit")) else 64)
    return model, (torch.randn(1, 3, side, side),)


# ---- transformers


def transformers_cases(pattern, _most):
    """The same for architectures of transformers."""
    from transformers_small import CASES

    for name, make in CASES.items():
        if re.search(pattern, name):
            yield "transformers", name, make


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["torchvision", "transformers"])
    parser.add_argument("--match", default="")
    parser.add_argument("--most", type=float, default=1e9)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ROOT / "bench"))
    counts = {}
    cases = (torchvision_cases if args.which == "torchvision" else transformers_cases)(args.match, args.most)
    for family, name, make in cases:
        passed, total = counts.get(family, (0, 0))
        try:
            made = make()
            check = agree_compiled if family == "detection" else agree
            worst, outputs, (export, imported, built) = check(*made)
            print(
                f"agrees   {family:15} {name:32} {worst:.0e} of {outputs} outputs; "
                f"export {export:.0f} s, import {imported:.0f} s, build {built:.0f} s",
                flush=True,
            )
            passed += 1
        except Exception as e:  # noqa: BLE001 (each network is counted)
            kind = "differs" if isinstance(e, Differs) else "refused"
            print(f"{kind:8} {family:15} {name:32} {type(e).__name__}: {' '.join(str(e).split())[:300]}", flush=True)
        counts[family] = (passed, total + 1)
    for family, (passed, total) in counts.items():
        print(f"{family}: {passed} of {total} agree with PyTorch {torch.__version__}")
    return 0 if all(p == t for p, t in counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
