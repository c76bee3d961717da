"""The gpu room."""
