"""Models of Keras 3.  Keras itself says what is right."""

import os

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras", reason="Keras is not installed: its models are not compared", exc_type=ImportError)

from lathe import error, relay  # noqa: E402

L, ops = keras.layers, keras.ops


def outputs(model, xs, layout="NHWC"):
    """Lathe's, and Keras's."""
    wanted = [np.asarray(y) for y in keras.tree.flatten(model(xs if len(xs) > 1 else xs[0], training=False))]
    named = getattr(model, "inputs", None)
    names = [t.name for t in named] if named else [f"x{i}" for i in range(len(xs))]
    first = layout.startswith("NC")
    given = [np.ascontiguousarray(np.moveaxis(x, -1, 1)) if first and x.ndim == len(layout) else x for x in xs]
    mod, params = relay.frontend.from_keras(model, {n: x.shape for n, x in zip(names, given)}, layout)
    ex = relay.build(mod, "llvm -mcpu=native", params=params)["default"]().executor
    for name, x in zip(names, given):
        ex.set_input(name, x)
    ex.run()
    found = [ex.get_output(i).numpy() for i in range(len(ex.outputs))]
    return [np.moveaxis(y, 1, -1) if first and y.ndim == len(layout) else y for y in found], wanted


def check(model, *shapes, layout="NHWC", integers=False):
    rng = np.random.default_rng(3)
    xs = [
        rng.integers(0, 9, s).astype("int32") if integers else rng.standard_normal(s).astype("float32") for s in shapes
    ]
    for found, wanted in zip(*outputs(model, xs, layout)):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def chain(shape, *layers):
    return keras.Sequential([keras.Input(shape), *layers])


def test_image_network():
    model = chain((28, 24, 3), L.Conv2D(8, 3, padding="same", activation="relu"), L.MaxPooling2D(),
                  L.Conv2D(16, 3, strides=2, padding="same"), L.BatchNormalization(scale=False), L.ReLU(6.0),
                  L.DepthwiseConv2D(3, depth_multiplier=2), L.SeparableConv2D(8, 3, padding="same"), L.Dropout(0.5),
                  L.Conv2D(8, 1, groups=4, activation="mish"), L.GlobalAveragePooling2D(),
                  L.Dense(10, "softmax"))  # fmt: skip
    check(model, (2, 28, 24, 3))
    check(model, (2, 28, 24, 3), layout="NCHW")


def test_images_out():
    model = chain((5, 6, 3), L.Conv2DTranspose(4, 3, strides=2, padding="same"), L.UpSampling2D(2),
                  L.UpSampling2D(2, interpolation="bilinear"), L.ZeroPadding2D(1), L.Cropping2D(2),
                  L.Rescaling(0.5, 1.0), L.Resizing(7, 9, interpolation="nearest"),
                  L.Resizing(11, 5, interpolation="bicubic"))  # fmt: skip
    check(model, (2, 5, 6, 3))
    check(model, (2, 5, 6, 3), layout="NCHW")


@pytest.mark.parametrize("kernel, stride, padding", [(3, 1, "same"), (4, 2, "same"), (2, 3, "same"), (5, 2, "valid"),
                                                     (2, 3, "valid")])  # fmt: skip
def test_transposed(kernel, stride, padding):
    check(chain((5, 6, 3), L.Conv2DTranspose(4, kernel, strides=stride, padding=padding)), (1, 5, 6, 3))


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("sequences", [True, False])
def test_recurrent(layer, sequences):
    made = getattr(L, layer)
    check(chain((7, 5), made(6, return_sequences=sequences, go_backwards=not sequences)), (2, 7, 5))


def test_recurrent_in_others():
    check(chain((7, 5), L.Bidirectional(L.LSTM(6, return_sequences=True)), L.Bidirectional(L.GRU(3))), (2, 7, 5))
    check(chain((7, 5), L.GRU(6, reset_after=False)), (2, 7, 5))
    check(chain((3, 6), L.RNN([L.LSTMCell(4), L.GRUCell(5)])), (2, 3, 6))
    check(chain((3, 6, 6, 2), L.ConvLSTM2D(4, 3, padding="same")), (1, 3, 6, 6, 2))
    check(chain((4, 6, 8), L.TimeDistributed(L.Dense(3))), (2, 4, 6, 8))


def test_attention():
    x = keras.Input((6, 16))
    y = L.LayerNormalization()(x + L.MultiHeadAttention(4, 4)(x, x))
    check(keras.Model(x, L.Dense(3, "gelu")(y)), (2, 6, 16))


def test_words():
    x = keras.Input((12,), dtype="int32")
    y = L.Conv1D(8, 3, padding="causal", dilation_rate=2)(L.Embedding(10, 8)(x))
    check(keras.Model(x, L.GlobalMaxPooling1D()(y)), (2, 12), integers=True)


def test_several_ends():
    a, b = keras.Input((6,)), keras.Input((6,))
    ends = [L.Add()([a, b]), L.Concatenate()([a, b]), L.Dot(1)([a, b]), L.Maximum()([a, b]), L.Subtract()([a, b])]
    check(keras.Model([a, b], ends), (2, 6), (2, 6))


def test_norms_and_shapes():
    check(chain((6, 7, 8), L.GroupNormalization(4), L.UnitNormalization(), L.LayerNormalization(axis=[-2, -1]),
                L.BatchNormalization(axis=1), L.Softmax(axis=[1, 2])), (2, 6, 7, 8))  # fmt: skip
    check(chain((6, 8), L.Reshape((8, 6)), L.Permute((2, 1)), L.Flatten(), L.RepeatVector(3), L.PReLU()), (2, 6, 8))
    check(chain((6, 7, 8, 2), L.Conv3D(4, 3, padding="same"), L.MaxPooling3D(2), L.AveragePooling3D(2, padding="same")),
          (1, 6, 7, 8, 2))  # fmt: skip


@pytest.mark.parametrize("name", ["relu6", "softplus", "softsign", "silu", "leaky_relu", "hard_sigmoid", "elu", "selu",
                                  "celu", "glu", "hard_tanh", "tanh_shrink", "hard_shrink", "soft_shrink",
                                  "log_sigmoid", "log_softmax", "exponential", "hard_silu"])  # fmt: skip
def test_activation(name):
    check(chain((10,), L.Activation(name)), (3, 10))


class Own(keras.Model):
    """A model whose layers are called in Python, with a layer of the user's."""

    def __init__(self):
        super().__init__()
        self.first, self.second = L.Dense(4), Scaled()

    def call(self, x):
        h = ops.tanh(self.first(x))
        return self.second(h[:, :3] * 2.0 + ops.mean(h, axis=1, keepdims=True))


class Scaled(keras.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="uniform")

    def call(self, x):
        return ops.where(x > 0, x * self.scale, ops.zeros_like(x))


def test_subclassed():
    model = Own()
    model(np.zeros((2, 5), "float32"))
    check(model, (2, 5))


def test_open_batch():
    model = chain((8, 8, 3), L.Conv2D(4, 3, padding="same", activation="relu"), L.Flatten(), L.Dense(5))
    name = model.inputs[0].name
    mod, params = relay.frontend.from_keras(model, {name: (None, 8, 8, 3)}, "NHWC")
    ex = relay.build(mod, "llvm -mcpu=native", params=params)["default"]().executor
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 8, 8, 3)).astype("float32")
        ex.set_input(name, x)
        ex.run()
        np.testing.assert_allclose(ex.get_output(0).numpy(), np.asarray(model(x)), rtol=1e-4, atol=1e-5)


def test_refused():
    model = chain((10,), L.Dense(5))
    name = model.inputs[0].name
    with pytest.raises(error.ArgumentError, match=r"is \(None, 10\): shape="):
        relay.frontend.from_keras(model)
    with pytest.raises(error.ArgumentError, match="has no input 'y'"):
        relay.frontend.from_keras(model, {"y": (1, 10)})
    with pytest.raises(error.ArgumentError, match="does not fit"):
        relay.frontend.from_keras(model, {name: (1, 11)})
    with pytest.raises(error.ArgumentError, match="layout 'HWCN'"):
        relay.frontend.from_keras(model, {name: (1, 10)}, layout="HWCN")
    with pytest.raises(error.TypeError, match="takes a model of Keras 3, not a int"):
        relay.frontend.from_keras(3)
    sparse = chain((10,), L.Dense(5, "sparsemax"))
    with pytest.raises(error.UnsupportedError, match="operation Sparsemax has no row"):
        relay.frontend.from_keras(sparse, {sparse.inputs[0].name: (1, 10)})
    words = keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(9, 4, mask_zero=True), L.LSTM(3)])
    with pytest.raises(error.UnsupportedError, match="LSTM.*masked steps"):
        relay.frontend.from_keras(words, {words.inputs[0].name: (1, 5)})
