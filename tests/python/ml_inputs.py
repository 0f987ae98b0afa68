"""What the models of ml_models.zip are fed with, for the tests and bench/onnx_ml.py."""

import numpy as np

#: words that the encoders know, and one that they do not
WORDS = ("red", "green", "blue", "grey", "other")
#: models that cannot take a word or number they have not seen
STRICT = ("ordinal", "label_encoder", "label_binarizer")
#: models whose exporter gives NaN a meaning
GAPS = ("gaps", "imput", "lightgbm", "xgboost", "mixed_columns")


def inputs_of(name, model, batch, seed=3):
    """{input: array or dict} for a batch."""
    return {port.name: _value(name, port, batch, np.random.default_rng(seed + batch)) for port in model.graph.input}


def _value(name, port, batch, rng):
    if port.type.WhichOneof("value") == "map_type":
        return {"red": 2.5, "blue": 1.0, "other": float(batch)}
    kind = port.type.tensor_type
    shape = [d.dim_value or batch for d in kind.shape.dim]
    if kind.elem_type in (1, 11):
        x = rng.standard_normal(shape)
        if any(word in name for word in GAPS):
            x[rng.random(shape) < 0.1] = np.nan
        return x.astype(np.float32 if kind.elem_type == 1 else np.float64)
    strict = any(word in name for word in STRICT)
    if kind.elem_type == 7:
        return rng.integers(0 if strict else -3, 3 if strict else 4, shape)
    return np.array(WORDS[: 4 if strict else 5], object)[rng.integers(0, 4 if strict else 5, shape)]
