# One virtual environment for everything; `make run` and `make test` need only Python >= 3.11.
PYTHON ?= python3
BIN := .venv/bin
# What compares random scenarios, half of which do for a change.
BY_CHANCE := tests/oracle tests/runs/test_shares.py tests/study/test_early_stop.py
# The tests of the packages that differ from the last commit.
NEAR = $(wildcard $(sort $(shell git diff --name-only HEAD | sed -n 's|^blis_tui/\([a-z]*\)/.*|tests/\1|p')))
RECORDED := $(wildcard tests/*/test_recorded.py tests/*/*/test_recorded.py)

.PHONY: run test quick near recorded nightly lint golden docs site notebooks gallery pictures bench guard clean

run: .venv/installed
	$(BIN)/blis-tui run quickstart --format table

test: lint
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

quick: .venv/installed
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not slow"

near: .venv/installed
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/test_architecture.py tests/test_docs.py $(NEAR)

# A test that writes its file anew fails; so they run until nothing is left to write, and git tells what moved.
recorded: .venv/installed
	-$(BIN)/python -m pytest -q -n 2 $(RECORDED) --force-regen
	-$(BIN)/python -m pytest -q -n 2 $(RECORDED) --force-regen
	$(BIN)/python -m pytest -q -n 2 $(RECORDED)
	git status --short tests

nightly: .venv/installed
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m nightly
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup specs -o blis_checks="observers checkpoint hash-seed"
	BLIS_TUI_ORACLE_SHARE=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup $(BY_CHANCE)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

golden: .venv/installed
	$(BIN)/python -m pytest -q specs/experiments --blis-update=always

docs: .venv/installed
	$(BIN)/python docs/make_plugins.py
	$(BIN)/python docs/make_schemas.py
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_terminal_reference.py
	$(BIN)/python docs/make_schedulers.py
	$(BIN)/python docs/make_chunks.py
	$(BIN)/python docs/make_reliability.py
	$(BIN)/python docs/make_studies.py

site: .venv/installed
	$(BIN)/pip install -q -e '.[docs]'
	$(BIN)/mkdocs build --strict

notebooks: .venv/installed
	$(BIN)/pip install -q -e '.[docs,calibrate]'
	$(BIN)/python docs/make_notebooks.py

gallery: .venv/installed
	$(BIN)/python docs/make_gallery.py

pictures: .venv/installed
	$(BIN)/python docs/make_pictures.py

bench: .venv/installed
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/tui.py

guard: .venv/installed
	$(BIN)/python -m benchmarks.guard --all

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -e '.[dev]'
	touch $@
