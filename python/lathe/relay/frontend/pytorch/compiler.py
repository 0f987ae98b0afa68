"""torch.compile(model, backend="lathe").

Dynamo hands over a graph of PyTorch's functions; AOTAutograd makes it a graph of ATen operators in which nothing is
changed in place (what the program changes is written back by PyTorch behind it).  That graph is cut into parts
that Lathe compiles and nodes that it leaves to PyTorch.  Weights are constants of a compiled part for as long as
nobody changes them: every call looks at their version, and compiles anew when one is another; a weight that changes
a second time is an input from then on."""

from __future__ import annotations

import logging
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

from .... import error
from ...expr import Function, RelayExpr, var
from ...expr import Tuple as TupleExpr
from ...ty import TensorType
from . import cache, decompose, exported, graph, sizes, table

log = logging.getLogger("lathe.torch")


def backend(
    gm: Any, example_inputs: Sequence[Any], *, options: Optional[Dict[str, Any]] = None, mode: Any = None
) -> Callable[..., Any]:
    """The backend: options are target (as relay.build takes it), opt_level, and cache: the folder of compiled graphs,
    or False."""
    import torch
    from torch._dynamo.backends.common import aot_autograd

    exported.check_version()
    settings = dict(options or {})
    unknown = sorted(set(settings) - {"target", "opt_level", "cache"})
    if unknown:
        raise error.ArgumentError(
            f"torch.compile(backend=\"lathe\"): there is no option '{unknown[0]}'; there are target, opt_level, cache"
        )
    if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in example_inputs):
        warnings.warn(
            "lathe: this graph records gradients, which is left to PyTorch; call the model under torch.no_grad() or "
            "torch.inference_mode() to have it compiled",
            stacklevel=2,
        )
        return gm.forward
    fixed = _fixed_inputs(gm, example_inputs)

    def compile_inference(aot: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        from functorch.compile import make_boxed_func

        made = compile_graph(aot, fixed if len(fixed) == len(inputs) else [False] * len(inputs), settings)
        return make_boxed_func(made)

    return aot_autograd(
        fw_compiler=compile_inference, inference_compiler=compile_inference, decompositions=decompose.decompositions()
    )(gm, example_inputs)


def _fixed_inputs(gm: Any, example_inputs: Sequence[Any]) -> List[bool]:
    """Which inputs are weights: parameters and buffers of the modules."""
    import torch

    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    known = [bool((n.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type")) for n in nodes]
    return [k or isinstance(t, torch.nn.Parameter) for k, t in zip(known, example_inputs)]


def compile_graph(gm: Any, fixed: Sequence[bool], settings: Dict[str, Any]) -> Callable[..., Any]:
    """A function for a graph of ATen operators."""
    left: Set[str] = set()
    absent: Dict[str, int] = {}
    for node in gm.graph.nodes:
        reason = _reason(node)
        if reason:
            left.add(node.name)
            absent[reason] = absent.get(reason, 0) + 1
    while True:
        try:
            made = _assembled(gm, fixed, settings, left)
            break
        except _Left as e:
            left.add(e.node)
            absent[e.reason] = absent.get(e.reason, 0) + 1
    for reason, times in sorted(absent.items()):
        log.warning("left to PyTorch: %s%s", reason, f" ({times} times)" if times > 1 else "")
    return made


class _Left(Exception):
    """A node that turned out to be for PyTorch."""

    def __init__(self, node: str, reason: str):
        super().__init__(reason)
        self.node, self.reason = node, reason


def _reason(node: Any) -> str:
    """Why a node is left to PyTorch; nothing if it is not."""
    import operator

    import torch

    if node.op != "call_function" or node.target is operator.getitem:
        return ""
    for a in [node, *node.all_input_nodes]:
        known = a.meta.get("val")
        for v in known if isinstance(known, (list, tuple)) else [known]:
            if isinstance(v, torch.Tensor) and (v.device.type != "cpu" or v.layout != torch.strided):
                return f"{table.name_of(node.target)} on {v.device.type} tensors ({v.layout})"
            if isinstance(v, torch.Tensor) and str(v.dtype).split(".")[-1] not in graph.DTYPES:
                return f"{table.name_of(node.target)} of {str(v.dtype).split('.')[-1]}"
    known = node.meta.get("val")
    if sizes.is_symbolic(known) or isinstance(known, (bool, int, float)):
        return ""
    name = table.name_of(node.target)
    return "" if table.find(name) is not None else name


def _assembled(gm: Any, fixed: Sequence[bool], settings: Dict[str, Any], left: Set[str]) -> Callable[..., Any]:
    """The whole graph as one part, or parts among PyTorch's nodes."""
    if not left:
        return _Part(gm, list(fixed), settings)
    import torch
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    class Ours(OperatorSupportBase):
        def is_node_supported(self, _modules: Any, node: Any) -> bool:
            return node.op == "call_function" and node.name not in left

    copied = torch.fx.Graph()
    copied.output(copied.graph_copy(gm.graph, {}))
    whole = torch.fx.GraphModule(gm, copied)
    parts = CapabilityBasedPartitioner(whole, Ours(), allows_single_node_partition=True).partition_and_fuse()
    constant = {n.name for n, f in zip((n for n in gm.graph.nodes if n.op == "placeholder"), fixed) if f}
    for node in parts.graph.nodes:
        if node.op == "call_module" and node.name.startswith("fused_"):
            inner = getattr(parts, node.target)
            flags = [getattr(a, "name", "") in constant for a in node.args]
            setattr(parts, node.target, _as_module(_Part(inner, flags, settings)))
    parts.recompile()
    return parts


def _as_module(part: "_Part") -> Any:
    import torch

    class Compiled(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            made = part(*args)
            return made if part.many else made[0]

    return Compiled()


class _Part:
    """A graph that Lathe compiles: built on the first call, and again when a weight has changed."""

    def __init__(self, gm: Any, fixed: List[bool], settings: Dict[str, Any]):
        self.gm, self.fixed, self.settings = gm, fixed, settings
        nodes = list(gm.graph.nodes)
        self.places = [n for n in nodes if n.op == "placeholder"]
        self.fixed += [False] * (len(self.places) - len(self.fixed))
        result = next(n for n in nodes if n.op == "output").args[0]
        self.many = isinstance(result, (list, tuple))
        self.results = list(result) if self.many else [result]
        self.executor: Any = None
        self.versions: List[Any] = []
        self.writes: Dict[int, int] = {}
        self.inputs: List[int] = []
        self.outputs: List[Any] = []
        self._convert([None] * len(self.places))  # so that what is refused is known before anything runs

    def _convert(self, weights: Sequence[Any]) -> Any:
        """The function over the inputs that are not weights; without weights every input is a variable."""
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        g = graph.Graph()
        dims = exported.Dims()
        given, variables, self.inputs = [], [], []
        for i, (node, weight) in enumerate(zip(self.places, weights)):
            known = node.meta["val"]
            if weight is not None:
                given.append(exported.tensor_const(weight))
                continue
            if isinstance(known, (bool, int, float)):
                given.append(known)
                continue
            scalar = sizes.is_symbolic(known)
            kind = (
                TensorType((), "int64")
                if scalar
                else TensorType([dims.dim(d) for d in known.shape], graph.dtype_name(known.dtype))
            )
            made = var(node.name, kind)
            self.inputs.append(i)
            given.append(made)
            variables.append(made)
        try:
            with unset_fake_temporarily():  # (while PyTorch compiles, all tensors are fakes without values)
                values = g.run(self.gm.graph, given, self._attribute)
        except error.LatheError as e:
            raise _Left(g.node.name, f"{table.name_of(g.node.target)} ({e.message})") from None
        outs, self.outputs = [], []
        for node, value in zip(self.results, values):
            if isinstance(value, RelayExpr) and node not in self.places:
                self.outputs.append(("output", len(outs), node.meta.get("val")))
                outs.append(value)
            else:
                self.outputs.append(
                    ("input", self.places.index(node), None) if node in self.places else ("value", value, None)
                )
        return Function(variables, TupleExpr(outs)) if outs else None

    def _attribute(self, name: str) -> Any:
        found = getattr(self.gm, name)
        return found if hasattr(found, "graph") else exported.tensor_const(found)

    def _build(self, args: Sequence[Any]) -> None:
        weights = [a if f else None for a, f in zip(args, self.fixed)]
        function = self._convert(weights)
        self.versions = [_version(w) for w in weights]
        if function is None:
            return
        s = self.settings
        lib = cache.built(function, s.get("target", "llvm -mcpu=native"), s.get("opt_level", 3), s.get("cache"))
        self.executor = lib["default"]().executor

    def __call__(self, *args: Any) -> List[Any]:
        import torch

        changed = [i for i, v in enumerate(self.versions) if v is not None and v != _version(args[i])]
        for i in changed:  # one that is written to again and again is an input
            self.writes[i] = self.writes.get(i, 0) + 1
            self.fixed[i] = self.writes[i] < 2
        if changed or not self.versions:
            self._build(args)
        ex, results = self.executor, {}
        with torch.no_grad():
            if ex is not None:
                for k, i in enumerate(self.inputs):
                    ex.set_input_view(k, _shared(args[i]))
                for kind, k, known in self.outputs:
                    if kind == "output" and _static(known) and k not in results:
                        results[k] = torch.empty(tuple(known.shape), dtype=known.dtype)
                        if results[k].numel():
                            ex.set_output_view(k, exported.share(results[k]))
                ex.run()
            made = []
            for kind, k, known in self.outputs:
                if kind == "input":
                    made.append(args[k])
                elif kind == "value":
                    made.append(k)
                elif k in results:
                    made.append(results[k])
                else:
                    made.append(_taken(ex.get_output(k), known))
        return made


def _static(known: Any) -> bool:
    return hasattr(known, "shape") and all(isinstance(d, int) for d in known.shape)


def _version(t: Any) -> Any:
    """What changes when a weight does: its memory, or the count of writes to it."""
    if t is None:
        return None
    return (t.data_ptr(), None if t.is_inference() else t._version)


def _shared(a: Any) -> Any:
    """An argument as an array over its memory."""
    import torch

    if isinstance(a, (bool, int)):
        return exported.share(torch.tensor(int(a), dtype=torch.int64))
    return exported.share(a)


def _taken(array: Any, known: Any) -> Any:
    """An output whose size was not known before."""
    import torch

    t = torch.from_dlpack(array) if array.dtype != "bool" else torch.from_numpy(array.numpy())
    return t if hasattr(known, "shape") else t.item()
