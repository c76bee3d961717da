"""The frontend room."""
