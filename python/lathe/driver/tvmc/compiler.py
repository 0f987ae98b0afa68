"""From a model to a package."""

from __future__ import annotations

import os
import shlex
import tempfile
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ... import error
from ...runtime.params import save_param_dict
from .model import TVMCModel, TVMCPackage, pack


def target_text(target: Any, additional: Optional[Dict[str, Dict[str, Any]]] = None) -> Any:
    """The target, or of "llvm, c" the list of them, each with the options that were given for its kind."""
    if not isinstance(target, str):
        return target
    parts = (
        [t.strip() for t in target.split(",") if t.strip() and not t.strip().startswith("+")]
        if ", " in target
        else [target]
    )
    texts = [
        " ".join([p, *(f"-{name}={value}" for name, value in (additional or {}).get(p.split()[0], {}).items())])
        for p in parts
    ]
    return texts[0] if len(texts) == 1 else texts


def compile_model(
    tvmc_model: TVMCModel,
    target: Any,
    opt_level: int = 3,
    executor: Any = None,
    runtime: Any = None,
    tuning_records: Any = None,
    package_path: Any = None,
    cross: Union[None, str, Any] = None,
    cross_options: Union[None, str, Sequence[str]] = None,
    output_format: str = "so",
    dump_code: Union[None, str, Sequence[str]] = None,
    dump_offloads: Any = None,
    target_host: Any = None,
    disabled_pass: Union[None, str, Sequence[str]] = None,
    pass_context_configs: Optional[Sequence[str]] = None,
    additional_target_options: Optional[Dict[str, Dict[str, Any]]] = None,
    use_vm: bool = False,
    mod_name: str = "default",
    workspace_pools: Any = None,
    constant_pools: Any = None,
    instruments: Optional[Sequence[Any]] = None,
    desired_layout: Any = None,
    desired_layout_ops: Optional[Sequence[str]] = None,
    mixed_precision: bool = False,
    mixed_precision_calculation_type: str = "float16",
    **more: Any,
) -> TVMCPackage:
    """Compiles a model into a package: an archive at package_path (default: module.tar in a new temporary folder).

    tuning_records is what tune gave.  output_format is "so" (a shared library in the archive) or "tar" (objects).
    dump_code names kinds of text ("relay", "ll", "asm", "c") that are written beside the package."""
    from ... import relay
    from ...ir.transform import PassContext

    refused = {"dump_offloads": dump_offloads, "workspace_pools": workspace_pools, **more}
    refused.update(constant_pools=constant_pools)
    for name, value in refused.items():
        if value:
            raise error.UnsupportedError(f"tvmc compile: {name} is not supported; leave it out")
    if output_format not in ("so", "tar"):
        raise error.UnsupportedError(f"tvmc compile: the format is so or tar, not '{output_format}'")
    if use_vm:
        warnings.warn("tvmc compile: use_vm changes nothing, one executor runs fixed and open shapes", stacklevel=2)
    mod = tvmc_model.mod
    config = parse_configs(pass_context_configs or [])
    if tuning_records:
        config["lathe.tuned.database"] = os.fspath(tuning_records)
    with PassContext(
        opt_level=opt_level,
        disabled_pass=_words(disabled_pass),
        config=config,
        instruments=instruments,
    ):
        if desired_layout:
            mod = convert_layout(mod, desired_layout, desired_layout_ops)
        if mixed_precision:
            mod = relay.transform.ToMixedPrecision(mixed_precision_calculation_type)(relay.transform.InferType()(mod))
        lib = relay.build(
            mod,
            target_text(target, additional_target_options),
            target_host,
            executor,
            runtime,
            params=tvmc_model.params,
            mod_name=mod_name,
        )
    path = (
        os.fspath(package_path)
        if package_path is not None
        else os.path.join(tempfile.mkdtemp(prefix="lathe-"), "module.tar")
    )
    for kind in _words(dump_code):
        with open(f"{path}.{kind}", "w", encoding="utf-8") as f:
            f.write(mod.astext() if kind == "relay" else lib.get_source(kind))
    options: Dict[str, Any] = {"cc": cross} if isinstance(cross, str) else {"fcompile": cross} if cross else {}
    if cross_options:
        options["options"] = shlex.split(cross_options) if isinstance(cross_options, str) else list(cross_options)
    with tempfile.TemporaryDirectory(prefix="lathe-") as folder:
        library = lib.export_library(os.path.join(folder, f"mod.{output_format}"), **options)
        pack(
            path, {"mod.json": lib.get_graph_json().encode(), "mod.params": save_param_dict(lib.get_params())}, library
        )
    return TVMCPackage(path)


def convert_layout(mod: Any, layouts: Any, ops: Optional[Sequence[str]] = None) -> Any:
    """The model with other layouts: "NHWC" or "NHWC:HWIO" for the operators given, or the same for each."""
    from ... import relay

    given = [layouts] if isinstance(layouts, str) else list(layouts)
    names = list(ops or ["nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d"])
    if len(given) not in (1, len(names)):
        raise error.ArgumentError(f"desired_layout: {len(given)} layouts are given for {len(names)} operators")
    pairs = zip(names, given * (len(names) if len(given) == 1 else 1))
    wanted = {op: [*layout.split(":"), "default"][:2] for op, layout in pairs}
    return relay.transform.ConvertLayout(wanted)(relay.transform.InferType()(mod))


def parse_configs(configs: Sequence[str]) -> Dict[str, Any]:
    """Settings of the passes from texts KEY=VALUE, each as the type that the key has."""
    from ...ir.transform import PassContext

    known, out = PassContext.list_configs(), {}
    for text in configs:
        key, equal, value = text.partition("=")
        if not equal:
            raise error.ArgumentError(f"a setting of the passes is KEY=VALUE, not '{text}'")
        kind = known.get(key, {}).get("type", "str")
        read: Dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _truth}
        try:
            out[key] = read.get(kind, str)(value)
        except ValueError:
            raise error.ArgumentError(f"the setting {key} is of type {kind}, not '{value}'") from None
    return out


def _truth(text: str) -> bool:
    return text.lower() == "true" if text.lower() in ("true", "false") else bool(int(text))


def _words(given: Union[None, str, Sequence[str]]) -> List[str]:
    return [w.strip() for w in given.split(",") if w.strip()] if isinstance(given, str) else list(given or [])
