"""Whole TFLite networks against LiteRT's reference kernels, where they are there (LATHE_SHARED or ../shared)."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import List

import numpy as np
import pytest

import lathe
from lathe import relay

from test_tflite_operators import interpreter, litert, run_lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared"))
MODELS = sorted((SHARED / "models/trained/tflite").glob("*.tflite"))


def inputs_for(data: bytes, seed: int) -> List[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for d in interpreter.Interpreter(model_content=data).get_input_details():
        if d["dtype"] is np.float32:
            found.append(rng.standard_normal(d["shape"]).astype("float32"))
        else:
            info = np.iinfo(d["dtype"])
            found.append(rng.integers(info.min, info.max + 1, d["shape"]).astype(d["dtype"]))
    return found


@pytest.mark.skipif(not MODELS, reason="the shared models are not there")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_network(path: pathlib.Path) -> None:
    data = path.read_bytes()
    values = inputs_for(data, 0)
    for got, want in zip(run_lathe(data, values), litert(data, values)):
        assert got.dtype == want.dtype
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
        elif path.stem == "kws_ref_model_float32":  # activations are rounded to 8 bits between layers: one may differ
            np.testing.assert_allclose(got, want, atol=2e-3)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not MODELS, reason="the shared models are not there")
def test_compiled_file_runs(tmp_path: pathlib.Path) -> None:
    """The program compiles a model, and its file gives LiteRT's bytes."""
    program = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"
    if not program.exists():
        pytest.skip("the lathe program was not built")
    path = next(p for p in MODELS if p.stem == "micro_speech_quantized")
    data = path.read_bytes()
    values = inputs_for(data, 1)
    name = interpreter.Interpreter(model_content=data).get_input_details()[0]["name"]
    np.save(tmp_path / "x.npy", values[0])
    subprocess.run([program, "compile", path, "-o", tmp_path / "net.so"], check=True)
    subprocess.run([program, "run", tmp_path / "net.so", "--input", f"{name}={tmp_path}/x.npy", "--output",
                    tmp_path / "y.npz"], check=True)
    with np.load(tmp_path / "y.npz") as out:
        np.testing.assert_array_equal(out[out.files[0]], litert(data, values)[0])


class TvmModel:
    """What tflite.Model.GetRootAsModel gives: a table over the file's bytes."""

    class _Table:
        def __init__(self, data: bytes) -> None:
            self.Bytes = bytearray(data)

    def __init__(self, data: bytes) -> None:
        self._tab = self._Table(data)


@pytest.mark.skipif(not MODELS, reason="the shared models are not there")
def test_model_objects() -> None:
    data = MODELS[0].read_bytes()
    plain = relay.frontend.from_tflite(data)[0]
    assert lathe.ir.structural_equal(relay.frontend.from_tflite(TvmModel(data))[0], plain)
    assert lathe.ir.structural_equal(relay.frontend.from_tflite(str(MODELS[0]))[0], plain)
    with pytest.raises(TypeError, match="from_tflite takes the bytes of a model"):
        relay.frontend.from_tflite(3)
    with pytest.raises(ValueError, match="is float32 in the model, not int8|is int8 in the model, not int8"):
        relay.frontend.from_tflite(data, None, {plain["main"].params[0].name_hint: "int8"})
