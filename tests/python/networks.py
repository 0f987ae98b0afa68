"""Networks and oracles that several tests use."""

import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples"))


def resnet18_bn():
    """ResNet-18 with its batch normalisations, as an onnx.ModelProto."""
    import resnet18

    return resnet18.model()


def run_onnxruntime(path, feeds):
    """What ONNX Runtime gives."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    runner = onnxruntime.InferenceSession(
        str(path) if not isinstance(path, bytes) else path, options, providers=["CPUExecutionProvider"]
    )
    return runner.run(None, feeds)


def shared():
    """The folder of shared material, or None."""
    place = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared"))
    return place if place.is_dir() else None


def relative_error(got, want):
    """Of the output vector."""
    got, want = np.asarray(got, "float64"), np.asarray(want, "float64")
    return float(np.linalg.norm(got - want) / (np.linalg.norm(want) + 1e-30))
