"""minicc: an ML compiler small enough to read.

    import minicc as mc
    x = mc.Tensor([[1., 2.], [3., 4.]])
    y = (x @ x.T).relu().softmax(axis=-1)     # lazy: a graph
    y.numpy()                                 # compiled and run

Tensors: Tensor, zeros, ones, full, arange, eye, rand, randn, seed, where, maximum, minimum; the rest are
methods. Transformations: jit, compile, grad, value_and_grad, vjp, jacrev, checkpoint. Parts: nn, optim, io,
functional. Changing the compiler: using. Errors: MiniccError and its children; PrecisionNotice when 64-bit
data becomes 32-bit.
"""

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

from minicc.frontend import functional, io, nn, optim  # isort: skip
from minicc.frontend.arrays import PrecisionNotice  # isort: skip
from minicc.frontend.autograd import grad, jacrev, value_and_grad, vjp  # isort: skip
from minicc.frontend.checkpoint import checkpoint  # isort: skip
from minicc.frontend.creation import arange, eye, full, ones, rand, randn, seed, zeros  # isort: skip
from minicc.frontend.jit import compile, jit  # isort: skip
from minicc.frontend.ops import maximum, minimum, where  # isort: skip
from minicc.tools import debug  # isort: skip

__version__ = "0.1.0"
debug.watch_if_asked()

__all__ = [
    "CompileError", "DtypeError", "MachineFault", "MiniccError", "OutOfRangeError", "PrecisionNotice",
    "ShapeError",
    "Tensor", "Todo", "arange", "checkpoint", "compile", "eye", "full", "functional", "grad", "io", "jacrev",
    "jit", "maximum", "minimum", "nn",
    "ones", "optim", "rand", "randn", "realise", "seed", "using", "value_and_grad", "vjp",
    "where", "zeros",
]
