"""What the user said: tensor calls become a Graph."""

from minicc.frontend import tensor  # noqa: F401  the files of this room know each other; this one goes first
