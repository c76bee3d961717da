"""The tpu room."""
