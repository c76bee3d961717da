"""Drawings of every level: imported as `minicc.viz`, and only when something asks for a picture."""
