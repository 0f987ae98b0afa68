"""Writes TFLite models, for tests: a small flatbuffer writer, and the model's tables as a Python description.

    m = Model()
    x = m.input("x", (1, 8), "int8", scale=0.5, zero=3)
    w = m.const("w", array, scale=[0.1, 0.2], zero=[0, 0], axis=0)
    y = m.tensor("y", (1, 2), "int8", scale=1.0)
    m.op("FULLY_CONNECTED", [x, w], [y], options=(8, {0: ("i8", 1)}))
    m.output(y)
    data = m.bytes()

Options are the number of their table among BuiltinOptions and its fields: {slot: (kind, value)}, with kinds i8, u8,
bool, i32, u32, i64, f32, str, [i32]."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

TYPES = ["float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64",
         "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16"]
NAMES = """ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND
SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL
COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT""".split()
BUILTIN = {name: i for i, name in enumerate(NAMES)}


# ---- flatbuffers ------------------------------------------------------------------------------------------------


class Table:
    """Fields by slot: (kind, value).  Kinds of numbers are written in place, the rest by offset."""

    def __init__(self, fields: Dict[int, Tuple[str, Any]]) -> None:
        self.fields = fields


_NUMBERS = {"i8": "<b", "u8": "<B", "bool": "<?", "i16": "<h", "u16": "<H", "i32": "<i", "u32": "<I", "i64": "<q",
            "u64": "<Q", "f32": "<f"}


class _Writer:
    """Objects one behind the other, each after what points to it, so that all offsets are forward."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, n: int, then: int = 0) -> None:
        while (len(self.data) + then) % n:
            self.data.append(0)

    def point(self, at: int) -> None:
        struct.pack_into("<I", self.data, at, len(self.data) - at)

    def value(self, kind: str, value: Any) -> None:
        if kind == "table":
            self.table(value)
        elif kind == "str":
            raw = value.encode()
            self.align(4)
            self.point(self.here)
            self.data += struct.pack("<I", len(raw)) + raw + b"\0"
        elif kind == "bytes":
            self.align(16, 4)
            self.point(self.here)
            self.data += struct.pack("<I", len(value)) + bytes(value)
        elif kind == "[table]":
            self.align(4)
            self.point(self.here)
            self.data += struct.pack("<I", len(value))
            at = len(self.data)
            self.data += bytes(4 * len(value))
            for i, one in enumerate(value):
                self.here = at + 4 * i
                self.table(one)
        elif kind.startswith("["):
            form = _NUMBERS[kind[1:-1]]
            self.align(8, 4)
            self.point(self.here)
            self.data += struct.pack("<I", len(value))
            for one in value:
                self.data += struct.pack(form, one)
        else:
            raise ValueError(kind)

    def table(self, table: Table) -> None:
        """Written here; the field at self.here points to it."""
        here = self.here
        nslots = max(table.fields, default=-1) + 1
        offsets = [0] * nslots
        size = 4
        for slot, (kind, _) in sorted(table.fields.items()):
            n = struct.calcsize(_NUMBERS[kind]) if kind in _NUMBERS else 4
            size = -(-size // n) * n
            offsets[slot] = size
            size += n
        self.align(8, 4 + 2 * nslots)
        vtable = len(self.data)
        self.data += struct.pack("<HH", 4 + 2 * nslots, size) + struct.pack(f"<{nslots}H", *offsets)
        self.here = here
        start = len(self.data)
        struct.pack_into("<I", self.data, here, start - here)
        self.data += struct.pack("<i", start - vtable) + bytes(size - 4)
        for slot, (kind, value) in sorted(table.fields.items()):
            if kind in _NUMBERS:
                struct.pack_into(_NUMBERS[kind], self.data, start + offsets[slot], value)
        for slot, (kind, value) in sorted(table.fields.items()):
            if kind not in _NUMBERS:
                self.here = start + offsets[slot]
                self.value(kind, value)


def flatbuffer(root: Table) -> bytes:
    """The file of a root table."""
    w = _Writer()
    w.data += bytes(4) + b"TFL3"
    w.here = 0
    w.table(root)
    return bytes(w.data)


# ---- the model ---------------------------------------------------------------------------------------------------


def pack_int4(a: np.ndarray) -> bytes:
    """Two to a byte, the first in the low half."""
    flat = np.asarray(a, np.int8).reshape(-1).astype(np.uint8) & 15
    flat = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
    return bytes(flat[0::2] | flat[1::2] << 4)


class Graph:
    """A subgraph: tensors by number, operators in order."""

    def __init__(self, model: "Model", name: str = "main") -> None:
        self.model, self.name = model, name
        self.tensors: List[Dict[int, Tuple[str, Any]]] = []
        self.inputs: List[int] = []
        self.outputs: List[int] = []
        self.ops: List[Table] = []

    def tensor(self, name: str, shape: Sequence[int], dtype: str = "float32", scale: Any = None, zero: Any = 0,
               axis: int = 0, buffer: int = 0, variable: bool = False, signature: Optional[Sequence[int]] = None,
               sparsity: Optional[Table] = None) -> int:
        fields: Dict[int, Tuple[str, Any]] = {0: ("[i32]", list(shape)), 1: ("i8", TYPES.index(dtype)),
                                              2: ("u32", buffer), 3: ("str", name)}
        if scale is not None:
            scales = [float(s) for s in np.atleast_1d(scale)]
            zeros = [int(z) for z in np.atleast_1d(zero)]
            if len(zeros) == 1:
                zeros = zeros * len(scales)
            fields[4] = ("table", Table({2: ("[f32]", scales), 3: ("[i64]", zeros), 6: ("i32", axis)}))
        if variable:
            fields[5] = ("bool", True)
        if sparsity is not None:
            fields[6] = ("table", sparsity)
        if signature is not None:
            fields[7] = ("[i32]", list(signature))
        self.tensors.append(fields)
        return len(self.tensors) - 1

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32", **more: Any) -> int:
        self.inputs.append(self.tensor(name, shape, dtype, **more))
        return self.inputs[-1]

    def const(self, name: str, value: Any, dtype: Optional[str] = None, **more: Any) -> int:
        value = np.asarray(value)
        raw = pack_int4(value) if dtype == "int4" else np.ascontiguousarray(value).tobytes()
        self.model.buffers.append(raw)
        return self.tensor(name, value.shape, dtype or value.dtype.name, buffer=len(self.model.buffers) - 1, **more)

    def output(self, *tensors: int) -> None:
        self.outputs += tensors

    def op(self, name: str, inputs: Sequence[int], outputs: Sequence[int],
           options: Optional[Tuple[int, Dict[int, Tuple[str, Any]]]] = None, version: int = 1, custom: bytes = b"",
           intermediates: Sequence[int] = ()) -> None:
        fields: Dict[int, Tuple[str, Any]] = {0: ("u32", self.model.code(name, version)),
                                              1: ("[i32]", list(inputs)), 2: ("[i32]", list(outputs))}
        if options:
            fields[3] = ("u8", options[0])
            fields[4] = ("table", Table(options[1]))
        if custom:
            fields[5] = ("bytes", custom)
        if intermediates:
            fields[8] = ("[i32]", list(intermediates))
        self.ops.append(Table(fields))

    def table(self) -> Table:
        return Table({0: ("[table]", [Table(t) for t in self.tensors]), 1: ("[i32]", self.inputs),
                      2: ("[i32]", self.outputs), 3: ("[table]", self.ops), 4: ("str", self.name)})


class Model(Graph):
    """A model; itself its first subgraph."""

    def __init__(self) -> None:
        super().__init__(self)
        self.buffers: List[bytes] = [b""]
        self.codes: List[Tuple[str, int]] = []
        self.graphs: List[Graph] = [self]
        self.signature: Optional[Tuple[Dict[str, int], Dict[str, int]]] = None

    def graph(self, name: str) -> Graph:
        self.graphs.append(Graph(self, name))
        return self.graphs[-1]

    def code(self, name: str, version: int) -> int:
        if (name, version) not in self.codes:
            self.codes.append((name, version))
        return self.codes.index((name, version))

    def _code_table(self, name: str, version: int) -> Table:
        custom = name.startswith("CUSTOM.")
        number = BUILTIN["CUSTOM" if custom else name]
        fields = {0: ("i8", min(number, 127)), 2: ("i32", version), 3: ("i32", number)}
        if custom:
            fields[1] = ("str", name[7:])
        return Table(fields)

    def root(self) -> Table:
        fields: Dict[int, Tuple[str, Any]] = {
            0: ("u32", 3), 1: ("[table]", [self._code_table(*c) for c in self.codes]),
            2: ("[table]", [g.table() for g in self.graphs]), 3: ("str", "test"),
            4: ("[table]", [Table({0: ("bytes", b)} if b else {}) for b in self.buffers])}
        if self.signature:
            ports = [[Table({0: ("str", n), 1: ("u32", t)}) for n, t in side.items()] for side in self.signature]
            fields[7] = ("[table]", [Table({0: ("[table]", ports[0]), 1: ("[table]", ports[1]),
                                            2: ("str", "serving_default"), 4: ("u32", 0)})])
        return Table(fields)

    def bytes(self) -> bytes:
        return flatbuffer(self.root())
