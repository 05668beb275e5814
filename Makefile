# SPDX-License-Identifier: Apache-2.0
#
# A thin front to meson and tools/: each target is one or two commands that can be run by hand.

BUILD ?= build
PYTHON := /usr/bin/python3

.DEFAULT_GOAL := build
.PHONY: build run check test test-all test-busy test-asan test-vm test-network test-images test-mcp test-backends test-deploy fuzz bench soak lint format clean runtimes \
	install-deps help

build: $(BUILD)/build.ninja ## build the programs into build/
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || { echo "meson is missing: make install-deps"; exit 1; }
	meson setup $(BUILD)

run: ## install what is missing, build, serve on 127.0.0.1:8000
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory build
	@echo "hermes: http://127.0.0.1:8000 unless .env or the environment say otherwise; Ctrl-C ends it"
	@exec $(BUILD)/hermes serve

check: build ## the quick look: unit tests, layers, style, one test per area
	@tools/check.sh $(BUILD)

test: ## install what is missing, build, run all tests; T=tests/judge runs a part
	@tools/install-deps.sh build test $(if $(filter true,$(CI)),runtimes)
	@$(if $(T),$(MAKE) --no-print-directory build && HERMES_BUILD_DIR=$(abspath $(BUILD)) \
		PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -q -ra $(T) $(PYTEST_ARGS),tools/test.sh $(BUILD))

test-all: test test-network test-images test-mcp test-backends test-deploy test-vm ## all tests: hours; some need Docker or QEMU

test-busy: ## make test beside two endless loops per core
	@tools/busy.sh $(MAKE) --no-print-directory test

test-asan: ## the same tests with the address and undefined-behaviour sanitizers
	@tools/install-deps.sh build test
	@MESON_SETUP_ARGS="-Db_sanitize=address,undefined -Db_lundef=false" \
		MESON_TEST_ARGS="--timeout-multiplier 5 $(MESON_TEST_ARGS)" tools/test.sh build-asan

test-vm: build ## the tests on a cgroup v2 system, in QEMU
	@tools/vm/run.sh

test-deploy: build ## packaging/ and docs/deploy.md: Docker here, systemd and Docker in QEMU
	@tools/deploy/run.sh

test-network: build ## the tests of networks, with their long forms: 1,000 boxes, floods
	@HERMES_FULL=1 HERMES_BUILD_DIR=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -q -ra \
		tests/network tests/spawner/test_spawn_egress.py $(PYTEST_ARGS)

test-images: ## layers and images, with skopeo, umoci, buildah and mmdebstrap
	@tools/install-deps.sh build test images
	@$(MAKE) --no-print-directory build && HERMES_BUILD_DIR=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest \
		-q -ra tests/images tests/images/check_oci_tools.py $(PYTEST_ARGS)

test-backends: ## places of sessions: sshd, dockerd and Podman that the tests start (root), vendors' packages with stand-ins, faults, attacks
	@tools/install-deps.sh build test engines
	@tools/backends/install.sh build-tools/backends
	@$(MAKE) --no-print-directory build && HERMES_BACKENDS=1 HERMES_BUILD_DIR=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 \
		$(PYTHON) -m pytest -q -ra -o python_files='test_*.py check_*.py' tests/backends $(PYTEST_ARGS)

test-mcp: build ## MCP: the official conformance suite, clients and inspector, both eras, stdio and HTTP
	@tools/install-deps.sh build test
	@HERMES_FULL=1 HERMES_BUILD_DIR=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -q -ra tests/mcp $(PYTEST_ARGS)

fuzz: ## run each fuzz target for FUZZ_SECONDS (60)
	@tools/install-deps.sh build test
	@tools/fuzz.sh build-fuzz

bench: build ## measure against the bare interpreter, bwrap, docker exec and ssh
	@tools/install-deps.sh build test engines
	@HERMES_BUILD_DIR=$(BUILD) $(PYTHON) tests/bench/run.py

soak: build ## run for a long time and look for leaks
	@HERMES_BUILD_DIR=$(BUILD) $(PYTHON) tests/bench/soak.py
	@HERMES_BUILD_DIR=$(BUILD) $(PYTHON) tests/bench/soak_sessions.py

lint: ## gcc -Werror, fuzz targets, clang-tidy, cppcheck, layers, style
	@tools/install-deps.sh build test
	@tools/lint.sh build-lint

format: ## clang-format all sources in place
	@find src tests/unit tests/fuzz -name '*.[ch]' -exec clang-format -i {} +

clean: ## remove every build directory
	rm -rf $(BUILD) build-asan build-fuzz build-lint build-lint-fuzz build-tools

runtimes: ## install the languages' toolchains
	@tools/install-deps.sh runtimes

install-deps: ## install what build and tests need
	@tools/install-deps.sh build test

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 14
