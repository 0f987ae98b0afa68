"""Builders: from modules to files of code.  One of one's own is a class with build(inputs)."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from .. import build_module, error
from .utils import Part, absent


class BuilderInput(NamedTuple):
    """What is built."""

    mod: Any
    target: Any
    params: Any = None


class BuilderResult(NamedTuple):
    """Where it lies, or why it is not there."""

    artifact_path: Optional[str]
    error_msg: Optional[str]


class Builder(Part):
    """A builder."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> List[BuilderResult]:
        """One result for each."""
        raise NotImplementedError


PyBuilder = Builder


class LocalBuilder(Builder):
    """On this machine.  With the local runner the engine builds and runs in child processes of its own, each within
    timeout_sec; with another runner, files are built in this process."""

    def __init__(
        self,
        *,
        max_workers: Optional[int] = None,
        timeout_sec: float = 30.0,
        f_build: Optional[Callable[..., Any]] = None,
        f_export: Optional[Callable[..., str]] = None,
        initializer: Any = None,
    ):
        if initializer is not None or isinstance(f_build, str) or isinstance(f_export, str):
            raise error.UnsupportedError("LocalBuilder: f_build and f_export are functions; there is no initializer")
        self.timeout_sec, self.f_build, self.f_export = timeout_sec, f_build, f_export

    @property
    def own(self) -> bool:
        """Has it a function of the user's?"""
        return self.f_build is not None or self.f_export is not None

    def build(self, build_inputs: Sequence[BuilderInput]) -> List[BuilderResult]:
        return [self._one(i) for i in build_inputs]

    def _one(self, inp: BuilderInput) -> BuilderResult:
        try:
            made = (self.f_build or _build)(inp.mod, inp.target, inp.params)
            return BuilderResult((self.f_export or _export)(made), None)
        except (error.LatheError, OSError) as e:
            return BuilderResult(None, f"LocalBuilder: {e}")


def _build(mod: Any, target: Any, _params: Any) -> Any:
    return build_module.build(mod, target=target)


def _export(made: Any) -> str:
    path = os.path.join(tempfile.mkdtemp(prefix="lathe-tune-"), "candidate.so")
    made.export_library(path)
    return path


KINDS = {"local": LocalBuilder}
globals()["__getattr__"] = absent("builder", "LocalBuilder and builders of your own are there")
