"""TensorFlow's models: relay.frontend.from_tensorflow.

model.py    frozen graphs and SavedModels to a module of relay and its parameters
proto.py    the messages of the files, read without TensorFlow
bundle.py   the variables of a SavedModel
graph.py    the walk over a graph and the functions that it calls
rows_*.py   the table from operators to relay, by family"""

from . import rows_control, rows_lists, rows_math, rows_nn, rows_shape
from .graph import ROWS
from .model import from_tensorflow

__all__ = ["ROWS", "from_tensorflow", "rows_control", "rows_lists", "rows_math", "rows_nn", "rows_shape"]
