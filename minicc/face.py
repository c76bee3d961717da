"""The public face: every name of `import minicc as mc`, in one place.

    mc.Tensor    mc.jit    mc.exp    mc.bfloat16        whichever is asked for first brings this file in

Goes in: the frontend. Comes out: its names, and those of its tables (methods.py, arrays.py). Invariant: only
minicc/__init__.py imports this file, and only once somebody wants a name: so `import minicc` takes a
millisecond, however much there is to offer, and the first name takes as long as all of it. scipy brings in
its subpackages in this way. Read next: frontend/tensor.py.
"""

from typing import TYPE_CHECKING, Any

from minicc.errors import (
    CompileError,
    DtypeError,
    MachineFault,
    MiniccError,
    OutOfRangeError,
    ShapeError,
    Todo,
)
from minicc.frontend.tensor import Tensor, realise  # first of the frontend: its files know each other
from minicc.slots import using

from minicc.frontend import functional, io, methods, nn, optim, random  # isort: skip
from minicc.frontend.arrays import NAMES, PrecisionNotice  # isort: skip
from minicc.frontend.autograd import grad, jacrev, value_and_grad, vjp  # isort: skip
from minicc.frontend.checkpoint import checkpoint  # isort: skip
from minicc.frontend.jit import compile, jit  # isort: skip
from minicc.tools import debug  # isort: skip

_BUILT_IN = {"abs", "all", "any", "bool", "divmod", "float", "int", "max", "min", "pow", "round", "sum"}
_DTYPES = {name: dtype for name, dtype in NAMES.items() if name not in _BUILT_IN}
if TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """The names of the tables."""

globals().update(methods.FUNCTIONS | _DTYPES)  # mc.exp, mc.zeros, mc.bfloat16, ...: the tables are the lists
debug.watch_if_asked()

__all__ = [
    "CompileError", "DtypeError", "MachineFault", "MiniccError", "OutOfRangeError", "PrecisionNotice",
    "ShapeError", "Tensor", "Todo", "checkpoint", "compile", "functional", "grad", "io", "jacrev", "jit",
    "nn", "optim", "random", "realise", "using", "value_and_grad", "vjp",
    *sorted({*methods.FUNCTIONS, *_DTYPES} - _BUILT_IN),
]
