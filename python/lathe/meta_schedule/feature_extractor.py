"""Features: what a cost model reads of a program.  One of one's own has extract_from(context, candidates)."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from .. import nd
from .._ffi import call
from .database import only_function
from .utils import Part, absent


class FeatureExtractor(Part):
    """Gives an array for each candidate, a row for each store of it."""

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> List[nd.NDArray]:
        """The arrays."""
        raise NotImplementedError


PyFeatureExtractor = FeatureExtractor


class PerStoreFeature(FeatureExtractor):
    """For each store: how often it runs, operations by kind, loops around it by what they are marked, bytes that it
    touches in loops of several depths; logarithms."""

    def __init__(
        self, buffers_per_store: int = 5, arith_intensity_curve_num_samples: int = 10, cache_line_bytes: int = 64,
        extract_workload: bool = False,
    ):  # fmt: skip
        self.buffers_per_store = buffers_per_store

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> List[nd.NDArray]:
        rows = [call("tune_features", only_function(c.sch.mod)) for c in candidates]
        return [nd.array(np.asarray(r, "float64")) for r in rows]


class RandomFeatureExtractor(FeatureExtractor):
    """Any numbers."""

    def __init__(self, *, feature_size: int = 30, max_block_num: int = 5, seed: int = 0):
        self.feature_size, self.max_block_num = feature_size, max_block_num
        self.random = np.random.default_rng(seed)

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> List[nd.NDArray]:
        def one() -> nd.NDArray:
            n = int(self.random.integers(1, self.max_block_num + 1))
            return nd.array(self.random.random((n, self.feature_size)))

        return [one() for _ in candidates]


globals()["__getattr__"] = absent("feature_extractor", "PerStoreFeature, RandomFeatureExtractor and your own are there")
