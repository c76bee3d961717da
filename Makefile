# Every target makes its own .venv first, and installs into it again only when the packaging or the folder changed.
#   make demo     train on handwritten digits, then watch one kernel go down to an emulated TPU and GPU
#   make test     the tests; doc blocks and house rules are among them
#   make check    the tests, ruff and mypy: what a change must pass
#   make clean    everything that these made
# To choose the Python: make PYTHON=/path/to/python3.12 demo

PY    := .venv/bin/python
STAMP := .venv/.minicc-installed-$(shell pwd | cksum | cut -d ' ' -f 1)

.PHONY: demo test check lint slow house clean

demo: $(STAMP)
	$(PY) -m minicc demo

test: $(STAMP)
	$(PY) -m pytest

check: test lint house

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m mypy

# The long sweeps. pytest says 5 when it finds none.
slow: $(STAMP)
	$(PY) -m pytest -m slow || [ $$? -eq 5 ]

# Lines of code by room, and whatever breaks a house rule (the tests hold the rules; this shows them).
house: $(STAMP)
	$(PY) tests/house.py

# A .venv that already works is kept, whoever made it; one that does not run is made anew.
$(STAMP): setup.cfg pyproject.toml
	@if ! $(PY) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$(PYTHON="$(PYTHON)" sh .ci/find-python) || exit 1; \
	    echo "making .venv with $$python"; \
	    rm -rf .venv && "$$python" -m venv .venv || exit 1; \
	fi
	@echo "installing minicc and its tools into .venv"
	@$(PY) -m pip install --disable-pip-version-check --editable '.[dot,dev]' >.venv/install.log 2>&1 || \
	    { cat .venv/install.log; echo "minicc: pip could not install it; the first run needs a package index"; exit 1; }
	@rm -f .venv/.minicc-installed* && touch $(STAMP)

clean:
	rm -rf .venv build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
