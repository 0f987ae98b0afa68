"""TFLite files that lie: each ends in a sentence that names the thing; none ends the process."""

from __future__ import annotations

import struct
from typing import Any, Callable

import numpy as np
import pytest

import lathe
from lathe import relay

import tflite_writer
from tflite_writer import Model, Table, flatbuffer


def import_bytes(data: bytes) -> Any:
    return relay.frontend.from_tflite(data)[0]


def refused(data: bytes, sentence: str) -> None:
    with pytest.raises(lathe.LatheError, match=sentence) as raised:
        import_bytes(data)
    assert "internal" not in str(raised.value).lower()


def dense(**change: Any) -> Model:
    """x (2, 3) times a weight (4, 3), int8; change: fields of the tensors x, w, y or of the operator."""
    m = Model()
    quant = {"x": (0.5, 0), "w": (0.25, 0), "y": (1.0, 0), **change.get("quant", {})}
    x = m.input("x", (2, 3), "int8", scale=quant["x"][0], zero=quant["x"][1])
    w = m.const("w", np.ones((4, 3), "int8"), scale=quant["w"][0], zero=quant["w"][1], axis=change.get("axis", 0))
    y = m.tensor("y", (2, 4), "int8", scale=quant["y"][0], zero=quant["y"][1])
    ins = change.get("inputs", [x, w, -1])
    m.op(change.get("op", "FULLY_CONNECTED"), ins, change.get("outputs", [y]),
         change.get("options", (8, {0: ("i8", 0)})), change.get("version", 4))
    m.output(*change.get("results", [y]))
    return m


def test_the_model_itself_is_taken() -> None:
    assert import_bytes(dense().bytes())["main"] is not None


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("tensor", ["x", "w", "y"])
def test_scales(tensor: str, scale: float) -> None:
    refused(dense(quant={tensor: (scale, 0)}).bytes(), f"scale 0 of tensor '{tensor}' is .*a scale is finite and above")


@pytest.mark.parametrize("zero", [128, -129, 1 << 40])
@pytest.mark.parametrize("tensor", ["x", "w", "y"])
def test_zero_points(tensor: str, zero: int) -> None:
    refused(dense(quant={tensor: (0.5, zero)}).bytes(), f"zero point 0 of tensor '{tensor}' is {zero}, outside int8")


def test_channel_counts() -> None:
    refused(dense(quant={"w": ([0.1, 0.2, 0.3], [0, 0, 0])}).bytes(), "'w' has 3 scales for the 4 elements of axis 0")
    refused(dense(quant={"w": ([0.1] * 4, [0] * 4)}, axis=7).bytes(), "the scales of tensor 'w' run along axis 7")
    refused(dense(quant={"w": ([0.1] * 3, [0] * 3)}, axis=1).bytes(), "'w' run along axis 1; axis 0 is that of the out")


def test_no_scale() -> None:
    m = Model()
    x, y = m.input("x", (2, 3), "int8", scale=0.5), m.tensor("y", (2, 4), "int8")
    m.op("FULLY_CONNECTED", [x, m.const("w", np.ones((4, 3), "int8"), scale=0.1)], [y], (8, {}), 4)
    m.output(y)
    refused(m.bytes(), "tensor 'y' is int8 without a scale")


def test_indices() -> None:
    refused(dense(inputs=[0, 9]).bytes(), "an operator's input 1 is tensor 9; subgraph 'main' has 3")
    refused(dense(inputs=[0, -2]).bytes(), "an operator's input 1 is tensor -2")
    refused(dense(outputs=[-1]).bytes(), "an operator's output 0 is tensor -1")
    refused(dense(results=[5]).bytes(), "a subgraph's output 0 is tensor 5")
    refused(dense(results=[]).bytes(), "the subgraph 'main' has no outputs")
    refused(dense(inputs=[0]).bytes(), "input 1 is missing")


@pytest.mark.parametrize("op", sorted(tflite_writer.BUILTIN))
def test_operators_without_inputs(op: str) -> None:
    """Every builtin operator with none of its inputs, and with one: a sentence, or a model."""
    for count in (0, 1):
        m = Model()
        x, y = m.input("x", (1, 4, 4, 2), "int8", scale=0.5), m.tensor("y", (1, 4, 4, 2), "int8", scale=0.5)
        m.op(op, [x][:count], [y])
        m.output(y)
        try:
            import_bytes(m.bytes())
        except lathe.LatheError as error:
            assert "internal" not in str(error).lower(), error


def test_missing_buffers() -> None:
    m = dense()
    m.tensors[1][2] = ("u32", 77)
    refused(m.bytes(), "tensor 'w' lies in buffer 77; the file has 2")
    m = dense()
    m.tensors[1][2] = ("u32", 0)
    refused(m.bytes(), "node 'y' takes 'w', which is no input, has no buffer and is no earlier node's output")
    m = dense()
    m.buffers[1] = b"\1\2\3"
    refused(m.bytes(), "tensor 'w' has 3 bytes of data, and its shape wants 12")


def test_operators() -> None:
    refused(dense(version=99).bytes(), "'FULLY_CONNECTED' .* is of version 99; the newest known is ")
    refused(dense(op="HASHTABLE_FIND").bytes(), "'HASHTABLE_FIND' .* is not supported; 'lathe ops --tflite'")
    refused(dense(op="CUSTOM.Mine").bytes(), "operator 'CUSTOM.Mine' .* is not supported")
    refused(dense(options=(1, {})).bytes(), "its options are of kind 1; 8 is wanted")
    refused(dense(options=(8, {0: ("i8", 17)})).bytes(), "activation 17 of quantized tensors is not supported")
    m = dense()
    m._code_table = lambda *_: Table({0: ("i8", 127), 2: ("i32", 1), 3: ("i32", 4000)})  # type: ignore[method-assign]
    refused(m.bytes(), "builtin operator 4000 is not known")


def test_an_output_made_twice() -> None:
    m = dense()
    m.op("RELU", [0], [2])
    refused(m.bytes(), "'y' is defined twice, again by node 'y'")


def test_dtypes() -> None:
    m = dense()
    m.tensors[0][1] = ("i8", 8)
    refused(m.bytes(), "tensor 'x' is complex64 .*, which is not supported")
    m.tensors[0][1] = ("i8", 99)
    refused(m.bytes(), "tensor 'x' is of a type not known")
    m = Model()
    x, y = m.input("x", (3,)), m.tensor("y", (3,), "int32")
    m.op("RELU", [x], [y])
    m.output(y)
    refused(m.bytes(), "RELU .*output 0 is float32, the file says int32")


def test_shapes() -> None:
    m = dense()
    m.tensors[1][0] = ("[i32]", [4, 5])
    refused(m.bytes(), "tensor 'w' has 12 bytes of data, and its shape wants 20")
    m.tensors[1][0] = ("[i32]", [2**31 - 1, 2**31 - 1, 2**31 - 1])
    refused(m.bytes(), "w")
    m.tensors[1][0] = ("[i32]", [-4, 3])
    refused(m.bytes(), "dimension 0 of tensor 'w' is -4")
    m.tensors[1][0] = ("[i32]", [1] * 300)
    refused(m.bytes(), "'w' has 300 dimensions")


def test_sizes_that_no_machine_has() -> None:
    m = Model()
    x, y = m.input("x", (1, 4, 4, 1)), m.tensor("y", (1, 4, 4, 1))
    m.op("RESIZE_BILINEAR", [x, m.const("size", np.int32([2**31 - 1, 4]))], [y], (15, {}), 3)
    m.output(y)
    refused(m.bytes(), "from 4 to 2147483647 elements")
    m = Model()
    x, y = m.input("x", (1, 2**30, 2**30, 1), "int8", scale=1.0), m.tensor("y", (1, 4, 4, 1), "int8", scale=1.0)
    m.op("AVERAGE_POOL_2D", [x], [y], (5, {1: ("i32", 1), 2: ("i32", 1), 3: ("i32", 3), 4: ("i32", 3)}), 2)
    m.output(y)
    refused(m.bytes(), "padded windows")
    m = Model()
    x, y = m.input("x", (2, 5)), m.tensor("y", (2, 4))
    s = m.tensor("s", (2**30, 2**10), variable=True)
    m.op("RNN", [x, m.const("w", np.ones((4, 5), "f4")), m.const("r", np.ones((4, 4), "f4")),
                 m.const("b", np.ones(4, "f4")), s], [y], (7, {0: ("i8", 4)}))
    m.output(y)
    refused(m.bytes(), "the variable 's' has 4398046511104 bytes")


def test_products_of_vectors() -> None:
    m = Model()
    x, y = m.input("x", (4,)), m.tensor("y", (4,))
    m.op("BATCH_MATMUL", [x, x], [y], (101, {0: ("bool", True)}))
    m.output(y)
    refused(m.bytes(), "operand 0 has 1 dimensions; 2 or more are wanted")


def test_subgraphs() -> None:
    def loop(cond: int, body: int) -> Model:
        m = Model()
        x, y = m.input("x", (2,)), m.tensor("y", (2,))
        m.op("WHILE", [x], [y], (93, {0: ("i32", cond), 1: ("i32", body)}))
        m.output(y)
        g = m.graph("round")
        a, b = g.input("a", (2,)), g.tensor("b", (2,))
        g.op("WHILE", [a], [b], (93, {0: ("i32", 2), 1: ("i32", 1)}))
        g.output(b)
        go = m.graph("go")
        go.input("a", (2,))
        go.output(go.const("yes", np.array(True)))
        return m

    refused(loop(2, 1).bytes(), "the body is subgraph 1 \\('round'\\), which leads back to itself")
    refused(loop(2, 0).bytes(), "the body is subgraph 0 \\('main'\\), which leads back to itself")
    refused(loop(9, 1).bytes(), "the condition is subgraph 9; the model has 3")
    refused(loop(-1, 1).bytes(), "the condition is subgraph -1")
    refused(loop(1, 1).bytes(), "leads back to itself")


def test_sparse() -> None:
    def sparse(sparsity: Table, values: bytes = b"\1\2") -> bytes:
        m = dense()
        m.tensors[1][6] = ("table", sparsity)
        m.buffers[1] = values
        return m.bytes()

    def level(segments: Any, indices: Any) -> Table:
        return Table({0: ("i8", 1), 2: ("u8", 1), 3: ("table", Table({0: ("[i32]", segments)})),
                      4: ("u8", 1), 5: ("table", Table({0: ("[i32]", indices)}))})

    rows = Table({0: ("i8", 0), 1: ("i32", 4)})
    good = Table({0: ("[i32]", [0, 1]), 2: ("[table]", [rows, level([0, 1, 1, 1, 2], [2, 0])])})
    import_bytes(sparse(good))
    refused(sparse(good, b"\1"), "it has fewer values than its indices want")
    for order, levels, sentence in [
            ([0], [rows], "do not fit its rank"), ([0, 0], [rows, rows], "its order is no order"),
            ([0, 1], [rows, level([0, 1], [0])], "it has too few segments"),
            ([0, 1], [rows, level([0, 1, 1, 1, 2], [2, 7])], "an index is outside its shape"),
            ([0, 1], [rows, level([0, 9, 9, 9, 9], [2, 0])], "a segment leads outside the indices"),
            ([0, 1], [rows, level([0, 2, 1, 1, 1], [2, 0])], "a segment leads outside the indices"),
            ([0, 1], [rows, Table({0: ("i8", 1), 2: ("u8", 7)})], "its indices are of a kind not known"),
            ([0, 1], [rows, Table({0: ("i8", 0), 1: ("i32", -3)})], "a dense dimension has no size"),
            ([0, 1], [rows, Table({0: ("i8", 0), 1: ("i32", 2**31 - 1)})], "larger than its shape")]:
        refused(sparse(Table({0: ("[i32]", order), 2: ("[table]", levels)})), sentence)


# ---- the flatbuffer itself -------------------------------------------------------------------------------------------


def test_no_flatbuffer() -> None:
    refused(b"", "no TFLite model")
    refused(b"TFL3", "no TFLite model")
    refused(b"\0\0\0\0TFL4" + bytes(40), "it does not say TFL3")
    refused(struct.pack("<I", 1 << 31) + b"TFL3" + bytes(40), "the file is damaged: Model leads outside its 48 bytes")
    refused(flatbuffer(Table({})), "the model has no subgraph")


def test_every_prefix() -> None:
    data = dense().bytes()
    for n in range(len(data)):
        with pytest.raises(lathe.LatheError):
            import_bytes(data[:n])


@pytest.mark.parametrize("value", [0, 1, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 4])
def test_every_word(value: int) -> None:
    """Each word of a file replaced: a model or a sentence, never a fault of Lathe's own."""
    data = dense().bytes()
    for at in range(0, len(data) - 4, 2):
        broken = data[:at] + struct.pack("<I", value) + data[at + 4:]
        try:
            import_bytes(broken)
        except lathe.LatheError as error:
            assert "internal" not in str(error).lower(), (at, error)
