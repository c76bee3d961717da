"""The random programs that `minicc fuzz` runs, by the name that tests import them by."""

from minicc.tools.random_graphs import random_array, random_graph, random_inputs

__all__ = ["random_array", "random_graph", "random_inputs"]
