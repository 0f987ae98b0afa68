"""The variables of a SavedModel: variables.index, a sorted table of names and places, and the data beside it."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, Iterator, Tuple

import numpy as np

from .... import error
from . import proto

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48


def _broken(path: Any, what: str) -> Any:
    raise error.ArgumentError(f"'{path}' is no table of variables, or is damaged: {what}")


class Bundle:
    """Variables by name."""

    def __init__(self, prefix: pathlib.Path):
        self.prefix = prefix
        self.index = pathlib.Path(f"{prefix}.index")
        self.entries: Dict[str, Any] = {}
        self._shards: Dict[int, Any] = {}
        try:
            data = self.index.read_bytes()
        except OSError as e:
            raise error.IOError(f"from_tensorflow: the variables cannot be read: {e}") from None
        for key, value in self._rows(data):
            if key:
                self.entries[key.decode(errors="replace")] = proto.read(value, "BundleEntry")
            else:
                self.header = proto.read(value, "BundleHeader")

    def _block(self, data: bytes, at: int, size: int) -> Iterator[Tuple[bytes, bytes]]:
        """Keys and values; a key shares its beginning with the one before."""
        if at < 0 or size < 4 or at + size + 1 > len(data):
            _broken(self.index, "a block lies beyond its end")
        if data[at + size]:
            raise error.UnsupportedError(f"from_tensorflow: '{self.index}' is compressed")
        block = memoryview(data)[at : at + size]
        (restarts,) = struct.unpack("<I", block[-4:])
        end, at, key = len(block) - 4 - 4 * restarts, 0, b""
        if end < 0:
            _broken(self.index, "a block has more restarts than bytes")
        while at < end:
            shared, at = proto.varint(block, at)
            own, at = proto.varint(block, at)
            length, at = proto.varint(block, at)
            if shared > len(key) or at + own + length > end:
                _broken(self.index, "a name is longer than its block")
            key = key[:shared] + bytes(block[at : at + own])
            yield key, bytes(block[at + own : at + own + length])
            at += own + length

    def _rows(self, data: bytes) -> Iterator[Tuple[bytes, bytes]]:
        if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
            _broken(self.index, "it does not end as one does")
        footer = data[-_FOOTER:]
        _, at = self._handle(footer, 0)  # where blocks about blocks are; then the index
        where, at = self._handle(footer, at)
        for _, handle in self._block(data, *where):
            yield from self._block(data, *self._handle(handle, 0)[0])

    @staticmethod
    def _handle(data: bytes, at: int) -> Tuple[Tuple[int, int], int]:
        offset, at = proto.varint(data, at)
        size, at = proto.varint(data, at)
        return (offset, size), at

    def __getitem__(self, name: str) -> np.ndarray:
        """The value of a variable, in the file's memory."""
        e = self.entries.get(name)
        if e is None:
            raise error.NotFoundError(f"from_tensorflow: the variables have no '{name}'")
        if e.slices:
            raise error.UnsupportedError(f"from_tensorflow: variable '{name}' lies in slices")
        kind, shape = proto.storage(proto.dtype_of(e.dtype)), proto.shape_of(e.shape) or []
        shard = self._shard(e.shard_id)
        count = int(np.prod(shape, dtype=np.int64))
        if e.size != count * kind.itemsize or e.offset < 0 or e.offset + e.size > len(shard):
            _broken(self.index, f"the place of variable '{name}'")
        return np.frombuffer(shard, kind, count, e.offset).reshape(shape) if count else np.zeros(shape, kind)

    def _shard(self, i: int) -> Any:
        if i not in self._shards:
            total = self.header.num_shards
            path = f"{self.prefix}.data-{i:05d}-of-{total:05d}"
            try:
                self._shards[i] = np.memmap(path, "uint8", "r")
            except (OSError, ValueError) as e:
                raise error.IOError(f"from_tensorflow: the variables cannot be read: {e}") from None
        return self._shards[i]


__all__ = ["Bundle"]
