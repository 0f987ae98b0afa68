"""Paddle's models: relay.frontend.from_paddle.

model.py    files and layers to a module of relay and its parameters
program.py  a program as both forms of file give it
pir.py      the newer form: net.json
legacy.py   the older form: net.pdmodel, and the table from its operators to those of the newer one
params.py   the parameters: net.pdiparams
graph.py    the walk over a program
rows_*.py   the table from operators to relay, by family"""

from . import rows_control, rows_math, rows_nn, rows_shape
from .graph import ROWS
from .model import from_paddle

__all__ = ["ROWS", "from_paddle", "rows_control", "rows_math", "rows_nn", "rows_shape"]
