"""From a model to one with functions of an external compiler: the usual order of passes."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Union

from .register import get_pattern_table


def partition_for(
    compiler: Union[str, Sequence[str]], mod: Any, params: Optional[Dict[str, Any]] = None, mod_name: str = "default"
) -> Any:
    """The model with what the compiler takes as functions of it; of several compilers the first that takes something
    has it.  Parameters become constants, which such functions can hold; what a normalisation does goes into the
    weights before it."""
    from ...build_module import as_module
    from ... import transform

    names = [compiler] if isinstance(compiler, str) else list(compiler)
    table = [row for name in names for row in get_pattern_table(name)]
    passes = [
        transform.InferType(),  # type: ignore[attr-defined]
        transform.SimplifyInference(),
        transform.DynamicToStatic(),
        transform.FoldConstant(),
        transform.SimplifyExpr(),
        transform.FoldScaleAxis(),
        transform.FoldConstant(),
        transform.MergeComposite(table),
        transform.AnnotateTarget(names),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(mod_name),
    ]
    mod = as_module(mod, params)
    for p in passes:
        mod = p(mod)
    return mod


def static_float(*exprs: Any) -> bool:
    """Are these tensors of float32 and of known sizes?"""
    from ...ty import TensorType

    for e in exprs:
        t = e.checked_type
        if not isinstance(t, TensorType) or t.dtype != "float32":
            return False
        if not all(isinstance(getattr(d, "value", d), int) for d in t.shape):
            return False
    return True
