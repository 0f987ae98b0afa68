"""Pools of memory that a program ahead of time works in, under TVM's names."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

from .. import error


class PoolInfoProperties:
    """What is known of a pool: its bytes (None: as many as it takes) and its speed.  Without speeds pools are
    preferred in their order; with them, said of every pool, what is moved most goes to the fastest.  A cycle is one of
    the fastest clock that is said; latency is paid once for each burst (or each 4 bytes)."""

    def __init__(self, size_hint_bytes: Optional[int] = None, clock_frequency_hz: Optional[int] = None,
                 read_bandwidth_bytes_per_cycle: Optional[int] = None, write_bandwidth_bytes_per_cycle: Optional[int] = None,
                 read_latency_cycles: int = 0, write_latency_cycles: int = 0,
                 target_burst_bytes: Any = None):  # fmt: skip
        self.size_hint_bytes = -1 if size_hint_bytes is None else int(size_hint_bytes)
        self.clock_frequency_hz = clock_frequency_hz
        self.read_bandwidth_bytes_per_cycle = read_bandwidth_bytes_per_cycle
        self.write_bandwidth_bytes_per_cycle = write_bandwidth_bytes_per_cycle
        self.read_latency_cycles, self.write_latency_cycles = read_latency_cycles, write_latency_cycles
        self.target_burst_bytes = target_burst_bytes

    def speeds(self, clock: Optional[int] = None) -> Optional[Tuple[float, float]]:
        """Bytes that are read and written in a cycle of that clock; None: nothing is known of it."""
        read = self.read_bandwidth_bytes_per_cycle
        if not read or read <= 0:
            return None
        write = self.write_bandwidth_bytes_per_cycle
        write = write if write and write > 0 else read
        bursts = self.target_burst_bytes.values() if isinstance(self.target_burst_bytes, dict) else ()
        burst = max([4, *(int(b) for b in bursts)])
        own = self.clock_frequency_hz
        slower = clock / own if clock and own and own > 0 else 1.0
        rows = ((read, self.read_latency_cycles), (write, self.write_latency_cycles))
        first, second = (1 / (slower * (1 / bandwidth + (latency or 0) / burst)) for bandwidth, latency in rows)
        return first, second


class PoolInfo:
    """A pool by name."""

    def __init__(self, pool_name: str, targets: Any = None, pool_info_properties: Optional[PoolInfoProperties] = None):
        if not pool_name.isidentifier():
            raise error.ArgumentError(f"the name of a pool is an identifier of C, '{pool_name}' is none")
        self.pool_name, self.targets = pool_name, targets
        self.properties = pool_info_properties or PoolInfoProperties()
        self.size_hint_bytes = self.properties.size_hint_bytes


class WorkspacePoolInfo(PoolInfo):
    """Memory that is written while the program runs."""


class ConstantPoolInfo(PoolInfo):
    """Memory that holds the weights: flash."""

    def __init__(self, pool_name: str, targets: Any = None, constant_info_arr: Any = None,
                 pool_info_properties: Optional[PoolInfoProperties] = None):  # fmt: skip
        if constant_info_arr:
            raise error.UnsupportedError(f"pool '{pool_name}': where each constant lies is the linker's to say")
        super().__init__(pool_name, targets, pool_info_properties)


class WorkspaceMemoryPools:
    """The pools that tensors may lie in, the preferred one first."""

    def __init__(self, pools: Sequence[WorkspacePoolInfo]):
        self.pools: List[WorkspacePoolInfo] = list(pools)

    def rows(self) -> List[Union[str, int, List[Any]]]:
        """Name and size of each pool, with its speeds where they are known, as the compiler takes them."""
        clocks = [p.properties.clock_frequency_hz or 0 for p in self.pools]
        out: List[Union[str, int, List[Any]]] = []
        for p in self.pools:
            size = max(p.size_hint_bytes, 0)
            speeds = p.properties.speeds(max(clocks) if all(c > 0 for c in clocks) else None)
            out += [p.pool_name, size if speeds is None else [size, *speeds]]
        return out


class ConstantMemoryPools:
    """The pools of the weights: together they must hold them."""

    def __init__(self, pools: Sequence[ConstantPoolInfo]):
        self.pools: List[ConstantPoolInfo] = list(pools)

    def size(self) -> Optional[int]:
        """Bytes of all pools; None: one of them is open."""
        sizes = [p.size_hint_bytes for p in self.pools]
        return None if any(s < 0 for s in sizes) else sum(sizes)


__all__ = [
    "ConstantMemoryPools", "ConstantPoolInfo", "PoolInfo", "PoolInfoProperties", "WorkspaceMemoryPools",
    "WorkspacePoolInfo",
]  # fmt: skip
