# Everything a person needs, from nothing but Python 3.11+ and make.
#
#   make demo    set up, then run the main job: profile, train, compose, predict, check
#   make test    set up, then style, types, floors and every test; changes no package of the machine
#   make native  install what the native network functions are built from (DPDK; Debian, root): their tests run then
#   make kube-tools   build the Kubernetes scheduler that a test runs (20 minutes, needs Go; once)
#   make demo-models  train the models of slomo serve --demo anew, after a change of the datasets or of what is stored
#   make axe     fetch axe-core, with which a test looks for faults of access on every page (needs npm; once)
#   make numa-guest   enforce plans in an emulated machine with two memory nodes (Debian's kernel and QEMU; root; 2 minutes)
#   make fuzz    many more mutated files for every reader, command and path of the service (EXAMPLES=330 of each; a quarter of an hour)
#   make faults  every I/O call of every writer fails in turn; 1,000 kills (needs cc; a quarter of an hour)
#   make lock, make sbom, make audit, make reproducible   see locks/README.md
#   make bench   the benchmarks, side by side with the alternatives: hours (make bench QUICK=1: less of each)
#   make papers  what is missing of the five papers' figures: measured, kept, written as docs/papers.md; hours, goes on where it stopped
#   make docs-site  the documentation as a site: notebooks run, Python's pages from docstrings, search without a network, links checked; in site/
#   make docs-blocks  every example of the documentation that one machine can run, long ones too (half an hour or more; SLOMO_DATA: folder of the published tables)
#   make figures  the README's figure and table, and the gallery's figures, from the shipped datasets
#   make release-check  one version everywhere; sdist and wheel built, compared, installed, tested
#   make clean   remove what make made

SHELL := /bin/sh
VENV ?= .venv
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := $(VENV)/bin
WORKERS ?= 3
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of Python processes; without bytecode on disk each would compile all of slomo.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lock sbom audit reproducible faults numa-guest kube-tools axe demo demo-models test fuzz lint types floors unit native bench papers datasets docs docs-site docs-blocks figures release-check clean

demo: $(VENV)/.runtime
	$(BIN)/slomo demo --out demo-output

# types take one core, so the rest goes on beside them
test: $(VENV)/.dev
	@+$(MAKE) --no-print-directory -j2 lint types floors unit

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "slomo needs Python 3.11 or newer; none found on PATH. hint: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing Debian's python3-venv"; apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); \
		else echo "$(PYTHON) cannot make virtual environments. hint: install your distribution's python3-venv" >&2; exit 2; fi; }

# exact versions with hashes; where an index has them no more, what pyproject.toml allows, but never past a wrong hash
LOCKED := rm -f $(VENV)/locked.log; $(BIN)/python -m pip install --quiet --progress-bar off --require-hashes --log $(VENV)/locked.log --requirement
OR_RANGES := || { ! grep -q "DO NOT MATCH THE HASHES" $(VENV)/locked.log && echo "the locked versions cannot be had here: installing what pyproject.toml allows" >&2 && $(BIN)/python -m pip install --quiet --editable

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml locks/all.txt locks/build.txt
	@echo "installing what slomo needs (half a minute or more)"
	@$(LOCKED) locks/all.txt --requirement locks/build.txt $(OR_RANGES) '.[all]' hatchling editables; }
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime locks/dev.txt
	@$(LOCKED) locks/dev.txt $(OR_RANGES) '.[dev]'; }
	@touch $@

LOCK := $(VENV)/tools/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header $(if $(UPGRADE),--upgrade)

# tools that look at packages, apart from the packages
$(VENV)/tools/bin/uv: $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet uv pip-audit cyclonedx-bom

lock: $(VENV)/tools/bin/uv
	$(LOCK) locks/build.in --output-file locks/build.txt
	$(LOCK) pyproject.toml --extra dev --constraint locks/build.txt --output-file locks/dev.txt
	$(LOCK) pyproject.toml --extra all --constraint locks/dev.txt --output-file locks/all.txt
	$(LOCK) pyproject.toml --extra host --constraint locks/dev.txt --output-file locks/profiler.txt
	$(LOCK) deploy/containers/service-requirements.txt --constraint locks/dev.txt --output-file locks/service.txt

sbom: $(VENV)/tools/bin/uv
	mkdir -p dist
	$(VENV)/tools/bin/cyclonedx-py requirements locks/service.txt --output-reproducible --output-file dist/slomo-service.cdx.json
	@echo dist/slomo-service.cdx.json

audit: $(if $(ADVISORIES),$(VENV)/.runtime,$(VENV)/tools/bin/uv)
ifdef ADVISORIES
	$(BIN)/python locks/audit.py $(ADVISORIES) locks/*.txt
else
	@for lock in dev service profiler; do \
		$(VENV)/tools/bin/pip-audit --strict --disable-pip --require-hashes --requirement locks/$$lock.txt || { \
		echo "locks/$$lock.txt: something is known to be vulnerable, or was not audited (the lines above say which). hint: without a network, make audit ADVISORIES=FOLDER (locks/README.md)" >&2; exit 1; }; done
endif

reproducible: $(VENV)/.runtime
	$(BIN)/python benchmarks/reproducible_wheel.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini --cache-dir .mypy_cache/benchmarks benchmarks

floors: $(VENV)/.dev
	$(BIN)/lint-imports

native:
	@sh synthetic_nf/install-debian-packages.sh || echo "continuing without them: the tests that need them skip and say so" >&2

unit: $(VENV)/.dev
	@test -e $(VENV)/.validate || { $(BIN)/python -m pip install --quiet --editable '.[validate]' \
		|| echo "pycachesim cannot be built here (no C compiler?): the comparison with it will be skipped" >&2; touch $(VENV)/.validate; }
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(CHOSEN)

COUNTS := $(CURDIR)/.faults.jsonl
fuzz: $(VENV)/.dev
	rm -f $(COUNTS)
	SLOMO_FUZZ=$(or $(EXAMPLES),330) SLOMO_FLIPS=1000 SLOMO_COUNTS=$(COUNTS) $(BIN)/python -m pytest -q -n $(WORKERS) tests/faults tests/models/test_identity.py tests/service/test_identity.py tests/training/test_plausibility.py
	$(BIN)/python docs/reliability.py $(COUNTS)

faults: $(VENV)/.dev
	rm -f $(COUNTS)
	SLOMO_KILLS=$(or $(KILLS),1000) SLOMO_COUNTS=$(COUNTS) $(BIN)/python -m pytest -q tests/faults/test_writers.py
	$(BIN)/python docs/reliability.py $(COUNTS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run_all.py $(if $(QUICK),--quick)

kube-tools: $(VENV)/bin/python
	$(BIN)/python deploy/kube-tools/build.py $(HOME)/.cache/slomo/kube

AXE := $(HOME)/.cache/slomo/axe
AXE_SHA256 := e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
axe:
	mkdir -p $(AXE) && cd $(AXE) && npm pack --silent axe-core@4.14.1
	cd $(AXE) && echo "$(AXE_SHA256)  axe-core-4.14.1.tgz" | sha256sum -c && tar -xzf axe-core-4.14.1.tgz --strip-components 1 package/axe.min.js

GUEST := $(HOME)/.cache/slomo/guest
numa-guest: $(VENV)/.runtime
	apt-get install -y -qq qemu-system-x86 cpio
	mkdir -p $(GUEST) && cd $(GUEST) && rm -rf *.deb kernel && apt-get download $$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends/ {print $$2}') && dpkg -x linux-image-*.deb kernel
	$(BIN)/python deploy/numa-guest/boot.py $(GUEST)/kernel/boot/vmlinuz-*

papers: $(VENV)/.runtime
	$(BIN)/python benchmarks/papers.py $(if $(FIGURE),--figure $(FIGURE)) $(if $(MODELS),--models $(MODELS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SCHEDULER),--scheduler $(SCHEDULER))

datasets: $(VENV)/.runtime
	$(BIN)/python datasets/make.py

demo-models: $(VENV)/.runtime
	$(BIN)/python datasets/demo_models.py

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

docs-site: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet 'zensical>=0.0.70' 'mkdocstrings-python>=2' 'nbconvert>=7.16'
	$(BIN)/python docs/make_site.py
	$(BIN)/zensical build --strict --clean
	$(BIN)/python docs/make_site.py finish
	@echo "site/index.html"

docs-blocks: $(VENV)/.dev
	SLOMO_BLOCKS=all $(BIN)/python -m pytest -q -n 0 -rs tests/docs/test_blocks.py $(CHOSEN)

figures: $(VENV)/.dev
	$(BIN)/python docs/make_figures.py

release-check: $(VENV)/.dev
	$(BIN)/python deploy/release_check.py $(CHOSEN)

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
