"""The kernel room."""
