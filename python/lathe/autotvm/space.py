"""What a template leaves open: splits, orders, annotations, knobs; and one choice of each."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .. import error


class InstantiationError(ValueError):
    """A template refused its configuration: raise_error, or a schedule that cannot be."""


class VirtualAxis:
    """An axis while the space is being described."""

    def __init__(self, var: Any, name: Optional[str] = None):
        self.name = name or getattr(getattr(var, "var", None), "name", "axis")
        if isinstance(var, (int, float)):
            self.length = int(var)
        elif isinstance(var, VirtualAxis):
            self.length = var.length
        elif hasattr(var, "dom"):
            if var.dom is None:
                self.length = -1
            else:
                self.length = int(var.dom.extent)
        else:
            raise error.TypeError(f"an axis is an IterVar or a length, not a {type(var).__name__}")

    def __repr__(self) -> str:
        return f"vaxis({self.name})"


def get_factors(n: int) -> List[int]:
    """All divisors, ascending."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted(set(low + [n // d for d in low]))


def get_pow2s(n: int) -> List[int]:
    """Powers of two up to n."""
    return [2**i for i in range(max(n, 1).bit_length())]


# ---- choices


class SplitEntity:
    """Sizes of the parts of an axis, outermost first; -1 is what is left."""

    def __init__(self, size: Sequence[int]):
        self.size = list(size)

    def apply(self, sch: Any, op: Any, axis: Any) -> List[Any]:
        """Splits the axis of the stage; its parts."""
        parts = []
        for i in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, math.prod(self.size[i:]))
            parts.append(outer)
        return parts + [axis]

    def __repr__(self) -> str:
        return str(self.size)


class ReorderEntity:
    """An order of axes, as places in the list that was given."""

    def __init__(self, perm: Sequence[int]):
        self.perm = list(perm)

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> List[Any]:
        """Reorders the axes of the stage; them in their new order."""
        ordered = [axes[i] for i in self.perm]
        if len(ordered) > 1:
            sch[op].reorder(*ordered)
        return ordered

    def __repr__(self) -> str:
        return str(self.perm)


class AnnotateEntity:
    """An annotation for each axis: none, unroll or vec."""

    def __init__(self, anns: Sequence[str]):
        self.anns = list(anns)

    def apply(
        self,
        sch: Any,
        op: Any,
        axes: Sequence[Any],
        axis_lens: Optional[Sequence[int]] = None,
        max_unroll: Optional[int] = None,
        vec_size: Optional[Sequence[int]] = None,
        cfg: Any = None,
        source: Any = None,
    ) -> List[Any]:
        """Marks the axes of the stage."""
        for i, ann in enumerate(self.anns):
            length = axis_lens[i] if axis_lens else None
            if ann == "unroll":
                if max_unroll and length and length > max_unroll:
                    raise InstantiationError(f"an axis of {length} steps is not unrolled above {max_unroll}")
                sch[op].unroll(axes[i])
            elif ann == "vec":
                if vec_size and length and length not in vec_size:
                    raise InstantiationError(f"an axis of {length} steps is no vector of {list(vec_size)}")
                sch[op].vectorize(axes[i])
            elif ann != "none":
                raise error.UnsupportedError(f"annotation '{ann}' is for GPUs, which templates are not tuned for")
        return list(axes)

    def __repr__(self) -> str:
        return str(self.anns)


class OtherOptionEntity:
    """The value of a knob."""

    def __init__(self, val: Any):
        self.val = val

    def __repr__(self) -> str:
        return str(self.val)


# ---- spaces


class _Space:
    """All choices for one thing."""

    def __init__(self, entities: List[Any]):
        self.entities = entities

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, i: int) -> Any:
        return self.entities[i]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(len={len(self)})"


class SplitSpace(_Space):
    """Ways to split an axis: policy factors (all divisors), power2, verbose (both), or candidate."""

    def __init__(self, axes: Sequence[VirtualAxis], policy: str, **kwargs: Any):
        axis = axes[0]
        self.product = axis.length
        self.num_output = kwargs.get("num_outputs", 0)
        if policy == "candidate":
            sizes = [list(size) for size in kwargs["candidate"]]
            self.num_output = len(sizes[0])
        elif policy in ("factors", "power2", "verbose"):
            if self.num_output < 1:
                raise error.ArgumentError("define_split wants num_outputs")
            sizes = self._sizes(policy, kwargs.get("max_factor", 1 << 31), kwargs.get("no_tail", policy == "factors"))
        else:
            raise error.ArgumentError(
                f"define_split: there is no policy '{policy}'; factors, power2, verbose, candidate are"
            )
        keep: Callable[[Any], bool] = kwargs.get("filter") or (lambda _e: True)
        super().__init__([e for e in map(SplitEntity, sizes) if keep(e)])

    def _sizes(self, policy: str, most: int, no_tail: bool) -> List[List[int]]:
        factors = get_factors(self.product) if policy in ("factors", "verbose") else []
        if policy in ("power2", "verbose"):
            factors = sorted({*factors, *get_pow2s(self.product)})
        factors = [f for f in factors if f <= most]
        out: List[List[int]] = []
        for inner in itertools.product(factors, repeat=self.num_output - 1):
            n = math.prod(inner)
            if n <= self.product and (not no_tail or self.product % n == 0):
                out.append([-1, *reversed(inner)])
        return out

    def __repr__(self) -> str:
        return f"Split(policy=factors, product={self.product}, num_outputs={self.num_output}) len={len(self)}"


class ReorderSpace(_Space):
    """Orders of axes: policy identity, all, interval_all, interval, or candidate."""

    def __init__(self, axes: Sequence[VirtualAxis], policy: str, **kwargs: Any):
        n = len(axes)
        places = list(range(n))
        if policy == "identity":
            perms = [places]
        elif policy == "all":
            perms = [list(p) for p in itertools.permutations(places)]
        elif policy in ("interval", "interval_all"):
            begin, end = (0, n) if policy == "interval_all" else kwargs["interval"]
            inner = itertools.permutations(places[begin:end])
            perms = [[*places[:begin], *p, *places[end:]] for p in inner]
        elif policy == "candidate":
            perms = [[list(axes).index(a) for a in order] for order in kwargs["candidate"]]
        else:
            raise error.ArgumentError(
                f"define_reorder: there is no policy '{policy}'; identity, all, interval, candidate are"
            )
        super().__init__([ReorderEntity(p) for p in perms])


class AnnotateSpace(_Space):
    """Annotations of axes: policy none, try_unroll, try_vec, try_unroll_vec, unroll, or candidate."""

    def __init__(self, axes: Sequence[VirtualAxis], policy: str, **kwargs: Any):
        choices = {
            "none": ["none"],
            "unroll": ["unroll"],
            "try_unroll": ["none", "unroll"],
            "try_vec": ["none", "vec"],
            "try_unroll_vec": ["none", "unroll", "vec"],
        }
        if policy == "candidate":
            anns = [list(a) for a in kwargs["candidate"]]
        elif policy in choices:
            anns = [list(a) for a in itertools.product(choices[policy], repeat=len(axes))]
        else:
            raise error.UnsupportedError(
                f"define_annotate: policy '{policy}' is for GPUs; {', '.join(choices)}, candidate serve"
            )
        super().__init__([AnnotateEntity(a) for a in anns])


class OtherOptionSpace(_Space):
    """The values of a knob."""

    def __init__(self, _axes: Any, _policy: Any, **kwargs: Any):
        super().__init__([OtherOptionEntity(v) for v in kwargs["candidate"]])


class _Base:
    """What ConfigSpace, ConfigEntity and fallbacks share: the calls that a template makes."""

    def __init__(self) -> None:
        self._entity_map: Dict[str, Any] = OrderedDict()
        self.flop = 0.0
        self.errors: List[str] = []
        self.is_fallback = False

    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        """An axis of a length, for describing a space."""
        return VirtualAxis(var)

    reduce_axis = axis

    def _define(self, _name: str, _make: Callable[[], _Space]) -> None:
        """A chosen configuration has it already."""

    def define_split(self, name: str, axis: Any, policy: str = "factors", **kwargs: Any) -> List[VirtualAxis]:
        """Leaves open how an axis is split into num_outputs parts."""
        axes = [axis if isinstance(axis, VirtualAxis) else VirtualAxis(axis)]
        self._define(name, lambda: SplitSpace(axes, policy, **kwargs))
        n = kwargs.get("num_outputs") or len(self._entity_map[name].size)
        return [VirtualAxis(-1, f"{axes[0].name}.{i}") for i in range(n)]

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> List[VirtualAxis]:
        """Leaves open the order of axes."""
        virtual = [a if isinstance(a, VirtualAxis) else VirtualAxis(a) for a in axes]
        if policy == "candidate":
            place = {id(a): v for a, v in zip(axes, virtual)}
            kwargs["candidate"] = [[place[id(a)] for a in order] for order in kwargs["candidate"]]
        self._define(name, lambda: ReorderSpace(virtual, policy, **kwargs))
        return [virtual[i] for i in self._entity_map[name].perm]

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> List[VirtualAxis]:
        """Leaves open what axes are marked as."""
        virtual = [a if isinstance(a, VirtualAxis) else VirtualAxis(a) for a in axes]
        self._define(name, lambda: AnnotateSpace(virtual, policy, **kwargs))
        return virtual

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """Leaves open one of some values."""
        self._define(name, lambda: OtherOptionSpace(None, None, candidate=candidate))

    def add_flop(self, flop: float) -> None:
        """Says how many operations the computation takes."""
        self.flop += float(flop)

    def raise_error(self, msg: str) -> None:
        """This configuration cannot be."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Did nothing speak against it?"""
        return not self.errors

    def __getitem__(self, name: str) -> Any:
        return self._entity_map[name]

    def __contains__(self, name: str) -> bool:
        return name in self._entity_map


class ConfigSpace(_Base):
    """All configurations of a template; while it is described, the first of each choice stands for it."""

    def __init__(self) -> None:
        super().__init__()
        self.space_map: Dict[str, _Space] = OrderedDict()
        self.is_collecting = True
        self._filters: List[Callable[["ConfigEntity"], bool]] = []

    def _define(self, name: str, make: Callable[[], _Space]) -> None:
        if name in self.space_map:
            return
        space = make()
        if not len(space):
            raise error.ArgumentError(f"'{name}' has no choice that is possible")
        self.space_map[name] = space
        self._entity_map[name] = space[0]

    def multi_filter(self, filter: Callable[["ConfigEntity"], bool]) -> None:  # pylint: disable=redefined-builtin
        """Leaves out configurations for which it is false."""
        self._filters.append(filter)

    @property
    def dims(self) -> List[int]:
        """How many choices each thing has."""
        return [len(s) for s in self.space_map.values()]

    @property
    def range_length(self) -> int:
        """All combinations, those that filters leave out too."""
        return math.prod(self.dims)

    def __len__(self) -> int:
        if not self._filters:
            return self.range_length
        return sum(self.is_index_valid(i) for i in range(self.range_length))

    def is_index_valid(self, index: int) -> bool:
        """Is there such a combination, and do the filters let it through?"""
        return 0 <= index < self.range_length and all(f(self.get(index)) for f in self._filters)

    def get(self, index: int) -> "ConfigEntity":
        """The configuration of a number."""
        if not 0 <= index < self.range_length:
            raise IndexError(f"configuration {index} is none of {self.range_length}")
        entities, left = OrderedDict(), index
        for name, space in self.space_map.items():
            entities[name] = space[left % len(space)]
            left //= len(space)
        return ConfigEntity(index, entities)

    def knobs_of(self, index: int) -> List[int]:
        """Which choice each thing has in a configuration."""
        out = []
        for n in self.dims:
            out.append(index % n)
            index //= n
        return out

    def index_of(self, knobs: Sequence[int]) -> int:
        """The number of these choices."""
        index = 0
        for n, k in zip(reversed(self.dims), reversed(list(knobs))):
            index = index * n + k
        return index

    def __iter__(self) -> Iterator["ConfigEntity"]:
        return (self.get(i) for i in range(self.range_length) if self.is_index_valid(i))

    def __repr__(self) -> str:
        head = f"ConfigSpace (len={len(self)}, range_length={self.range_length}, space_map=\n"
        return (
            head
            + "\n".join(f"  {i:2d} {name}: {space!r}" for i, (name, space) in enumerate(self.space_map.items()))
            + "\n)"
        )


_KINDS = {"sp": SplitEntity, "re": ReorderEntity, "an": AnnotateEntity, "ot": OtherOptionEntity}


class ConfigEntity(_Base):
    """One configuration."""

    def __init__(self, index: int, entity_map: Dict[str, Any], code_hash: Any = None):
        super().__init__()
        self.index, self._entity_map, self.code_hash = index, entity_map, code_hash

    def to_json_dict(self) -> Dict[str, Any]:
        """As a line of a log has it."""
        entity = []
        for name, e in self._entity_map.items():
            kind = next(k for k, c in _KINDS.items() if isinstance(e, c))
            entity.append([name, kind, next(iter(vars(e).values()))])
        return {"index": self.index, "code_hash": self.code_hash, "entity": entity}

    @staticmethod
    def from_json_dict(json_dict: Dict[str, Any]) -> "ConfigEntity":
        """Of a line of a log."""
        entities = OrderedDict((name, _KINDS[kind](value)) for name, kind, value in json_dict["entity"])
        return ConfigEntity(json_dict["index"], entities, json_dict.get("code_hash"))

    def numbers(self) -> List[Tuple[str, float]]:
        """What the cost model reads of it: a number each."""
        out: List[Tuple[str, float]] = []
        for name, e in self._entity_map.items():
            if isinstance(e, SplitEntity):
                out += [(f"{name}.{i}", float(v)) for i, v in enumerate(e.size) if v > 0]
            elif isinstance(e, ReorderEntity):
                out += [(f"{name}.{i}", float(v)) for i, v in enumerate(e.perm)]
            elif isinstance(e, AnnotateEntity):
                out += [(f"{name}.{i}", float(("none", "unroll", "vec").index(a))) for i, a in enumerate(e.anns)]
            else:
                known = isinstance(e.val, (int, float))
                out.append((name if known else f"{name}.{e.val}", float(e.val) if known else 1.0))
        return out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self.to_json_dict()["entity"] == other.to_json_dict()["entity"]

    def __hash__(self) -> int:
        return hash(str(self.to_json_dict()["entity"]))

    def __repr__(self) -> str:
        inside = ",".join(f"{name}={e!r}" for name, e in self._entity_map.items())
        return f"[({inside})],{self.code_hash},{self.index}"


class FallbackConfigEntity(ConfigSpace):
    """For a template that nothing was tuned for: the first of each choice, or what the template sets."""

    def __init__(self) -> None:
        super().__init__()
        self.is_fallback = True
        self.is_collecting = False

    def __setitem__(self, name: str, entity: Any) -> None:
        self._entity_map[name] = entity

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """The largest parts that are at most so large, from the innermost."""
        space = self.space_map[name]
        fits = [e for e in space.entities if all(c <= 0 or s <= c for s, c in zip(e.size, constraints))]
        self._entity_map[name] = max(fits or space.entities, key=lambda e: [s for s in reversed(e.size)])
