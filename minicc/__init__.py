"""minicc."""
