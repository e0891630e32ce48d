# The one door. `make help` lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
PYTHON_DIRS := agents processors schemas/python schemas/tools tests bench
export GOTOOLCHAIN := local
# NVML's header marks old calls as deprecated; the bindings name them all.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

.PHONY: help setup demo packages test test-py test-go lint fmt types gen gen-check check bench bench-detect soak device-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Set up .venv, bin/heeler-agent and bin/nats-server; does only what is missing
	@deploy/dev/setup.sh

demo: setup ## A cluster on this machine: faults are injected and the story is told (DEMO=once, FAULTS=none, NODES=64, SEED=1)
	@$(PY) -m heeler.sim.demo

packages: setup ## .deb and .rpm of heeler-agent, heeler-health and heeler-slurm, into dist/
	@deploy/packages/build.sh

test: setup ## All tests that can run here
	@$(MAKE) -s test-go test-py

test-go: ## Go tests with the race detector
	@deploy/dev/test-go.sh

test-py: ## Python tests
	@$(PY) -m pytest -q $(PYTEST)

lint: setup ## ruff, go vet, staticcheck
	@.venv/bin/ruff check $(PYTHON_DIRS)
	@.venv/bin/ruff format --check -q $(PYTHON_DIRS)
	@deploy/dev/lint-go.sh

types: setup ## mypy --strict
	@.venv/bin/mypy agents processors schemas/python schemas/tools
	@.venv/bin/mypy tests bench

fmt: setup ## Format Python and Go
	@.venv/bin/ruff check -q --fix-only $(PYTHON_DIRS); .venv/bin/ruff format -q $(PYTHON_DIRS)
	@command -v gofmt >/dev/null && gofmt -w agent-go schemas/go || true

gen: setup ## Write the files and pages that follow from schemas/ and from the table of health checks
	@$(PY) schemas/tools/gen.py
	@$(PY) schemas/tools/vectors.py
	@$(PY) schemas/tools/subject_page.py
	@PYTHONPATH=agents:processors:schemas/python $(PY) -m heeler.health.reference docs/health-checks.md
	@PYTHONPATH=agents:processors:schemas/python $(PY) schemas/tools/parity.py
	@deploy/dev/gen-go.sh

gen-check: setup ## Fail where a generated file is not what the sources say
	@rm -rf build/gen && mkdir -p build/gen && cp -R schemas docs build/gen
	@$(MAKE) -s gen
	@for dir in schemas docs; do diff -r -q -x __pycache__ build/gen/$$dir $$dir || bad=1; done; [ -z "$$bad" ] || \
		{ echo "make gen changes these: commit its result"; exit 1; }
	@PYTHONPATH=agents:processors:schemas/python $(PY) schemas/tools/parity.py --check

check: lint types gen-check test ## What CI runs

bench: setup ## Measure, side by side, and print ratios
	@$(PY) bench/run.py

bench-detect: setup ## The score board of detection: faults, traps, healthy GPU-hours, beside other ways (an hour)
	@$(PY) bench/detection.py $(ARGS)

soak: setup ## Ten minutes of faults for one agent: nothing may grow
	@$(PY) bench/soak.py

device-check: setup ## On a machine with a GPU: the agent beside nvidia-smi, and what it costs (under five minutes)
	@$(PY) bench/device_check.py || [ $$? -eq 77 ]

clean: ## Remove what setup made
	rm -rf .venv bin build dist tests/fakes/nvml/build .mypy_cache .ruff_cache .pytest_cache
