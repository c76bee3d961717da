"""minicc: an ML compiler small enough to read.

    import minicc as mc
    x = mc.Tensor([[1., 2.], [3., 4.]])
    y = (x @ x.T).relu().softmax(axis=-1)     # lazy: a graph
    y.numpy()                                 # compiled and run

Tensors: Tensor, the dtypes (f32, bf16, float16, ...), and every operation of frontend/methods.py, which
API.md beside it lists: zeros, exp, sum, concatenate, ...; most are methods too. Random numbers in programs:
random. Transformations: jit, compile, grad, value_and_grad, vjp, jacrev, checkpoint. Parts: nn, optim, io,
functional. Changing the compiler: using. Errors: MiniccError and its children; PrecisionNotice when 64-bit
data becomes 32-bit.
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

__version__ = "0.1.0"
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
