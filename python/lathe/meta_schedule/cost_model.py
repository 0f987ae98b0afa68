"""Cost models: how good candidates are before they are measured; more is better.

One of one's own is a class with load, save, update and predict."""

from __future__ import annotations

import json
from typing import Any, List, Optional, Sequence

import numpy as np

from .._ffi import call
from .utils import Part, absent


class CostModel(Part):
    """A model."""

    def load(self, path: str) -> None:
        """Takes what save wrote."""
        raise NotImplementedError

    def save(self, path: str) -> None:
        """Writes what it has learnt."""
        raise NotImplementedError

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learns from measurements."""
        raise NotImplementedError

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """A number for each."""
        raise NotImplementedError


PyCostModel = CostModel


class RandomModel(CostModel):
    """Any."""

    def __init__(self, *, seed: Optional[int] = None, path: Optional[str] = None, max_range: int = 100):
        self.random, self.max_range = np.random.default_rng(seed), max_range

    def load(self, path: str) -> None:
        self.random.bit_generator.state = json.loads(open(path, encoding="utf-8").read())

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.random.bit_generator.state, f)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        pass

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        return self.random.random(len(candidates)) * self.max_range


class XGBModel(CostModel):
    """The engine's model over what loops do: gradient-boosted trees where libxgboost is found, else a regression."""

    def __init__(
        self,
        *,
        extractor: Any = None,
        config: Any = None,
        num_warmup_samples: int = 8,
        early_stopping_rounds: int = 50,
        verbose_eval: int = 25,
        average_peak_n: int = 32,
        adaptive_training: bool = True,
        num_tuning_cores: Any = None,
        tree_method: Any = None,
    ):
        from .feature_extractor import PerStoreFeature

        self.extractor, self.num_warmup_samples = extractor or PerStoreFeature(), num_warmup_samples
        self.rows: List[List[float]] = []
        self.seconds: List[float] = []

    def _features(self, context: Any, candidates: Sequence[Any]) -> List[List[float]]:
        """One row each: of the stores the sum, which is what the whole program does."""
        found = self.extractor.extract_from(context, candidates)
        return [[float(v) for v in np.asarray(f.numpy()).sum(axis=0)] for f in found]

    def load(self, path: str) -> None:
        with open(path, encoding="utf-8") as f:
            self.rows, self.seconds = json.load(f)

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as f:
            json.dump([self.rows, self.seconds], f)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        good = [(c, r) for c, r in zip(candidates, results) if r.run_secs]
        self.rows += self._features(context, [c for c, _r in good])
        self.seconds += [float(np.median([float(s) for s in r.run_secs])) for _c, r in good]

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        if len(self.rows) < self.num_warmup_samples:
            return np.random.default_rng(len(self.rows)).random(len(candidates))
        rows = self._features(context, candidates)
        thought = call("tune_model", self.rows, self.seconds, rows)
        return 1.0 / np.maximum(np.asarray(thought), 1e-12)


KINDS = {"xgb": XGBModel, "random": RandomModel}
globals()["__getattr__"] = absent("cost_model", "XGBModel, RandomModel and models of your own are there")
