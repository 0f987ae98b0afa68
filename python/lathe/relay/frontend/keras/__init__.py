"""Models of Keras 3, whatever its backend is.

model.py has from_keras; trace.py lets Keras call the model on tensors without values, which leaves a graph of Keras's
own operations; rows_*.py have a row for each, from which relay is built."""

from .model import from_keras

__all__ = ["from_keras"]
