# Every target builds with the same flags: the product, the test bench and
# Kubernetes itself then share one build cache.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

BUILD := $(CURDIR)/.build
BIN := $(BUILD)/bin
TOOLBIN := $(BUILD)/tools
LINT := $(TOOLBIN)/golangci-lint run --config $(CURDIR)/.golangci.yml
# Go cannot know that a cluster changed, and one at a time is enough for a machine.
ONCE := -count=1 -p=1
# The cluster that up and kubectl are about.
CLUSTER ?= sluice

##@ Every day

.PHONY: help
help: ## Say what there is
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo

.PHONY: check
check: ## Lint and unit tests of both modules; starts nothing
	@tools/timed lint $(MAKE) lint -- unit $(MAKE) unit

.PHONY: lint
lint: tools $(BUILD)/lint-selftest ## Lint both modules
	@code=0; \
	echo "lint: product"; $(LINT) ./... || code=1; \
	echo "lint: cluster"; cd cluster; $(LINT) ./... || code=1; \
	exit $$code

.PHONY: unit
unit: go ## Unit tests of both modules; alerts and dashboard by Prometheus' parser
	@tools/gotest unit . $$(tools/packages unit .)
	@tools/gotest unit-cluster cluster $$(tools/packages unit cluster)
	@tools/gotest unit-rules tools/rules -count=1 ./...

.PHONY: cli
cli: cli-build ## Build kubectl sluice and install it into a folder of the PATH; BINDIR= says which
	@tools/install-cli $(BIN)/kubectl-sluice $(BINDIR)

.PHONY: cli-build
cli-build: go
	@mkdir -p $(BIN)
	@go build -o $(BIN)/kubectl-sluice ./cmd/kubectl-sluice

.PHONY: generate
generate: tools ## Generate code and CRDs from api/, and code from proto/
	@tools/generate $(TOOLBIN)

.PHONY: verify
verify: tools ## Fail if generated files or module files are not up to date
	@tools/verify $(TOOLBIN)

##@ A cluster to play with (Linux, root)

.PHONY: demo
demo: go ## The volume populator tutorial on a real node, start to end
	@tools/go-run sluice-cluster demo $(ARGS)

.PHONY: up
up: go cli-build ## Start a cluster with Sluice; options by ARGS=--nodes=3, a name by CLUSTER=
	@tools/go-run sluice-cluster up --name=$(CLUSTER) $(ARGS)
	@tools/go-run sluice-cluster install --name=$(CLUSTER)
	@echo 'kubectl sluice: make kubectl ARGS="sluice explain pvc/NAME"; make cli installs it for other clusters'

.PHONY: down
down: go ## End clusters and remove all they left, also after a crash
	@tools/go-run sluice-cluster down $(ARGS)

.PHONY: kubectl
kubectl: go ## Talk to the cluster of `make up`: make kubectl ARGS="get pods -A"
	@tools/go-run sluice-cluster kubectl --name=$(CLUSTER) $(ARGS)

.PHONY: images
images: go ## Build the container images, as a layout and as archives
	@tools/go-run sluice-images -archives

##@ All tests (Linux, root)

.PHONY: test
test: go ## Everything below, with the time of each part
	@tools/timed \
	  unit $(MAKE) test-unit -- \
	  explorer $(MAKE) test-explorer -- \
	  conformance $(MAKE) conformance -- \
	  integration $(MAKE) test-integration -- \
	  e2e $(MAKE) test-e2e -- \
	  csi-sanity $(MAKE) test-sanity

.PHONY: test-unit
test-unit: unit ## What needs no cluster

.PHONY: test-explorer
test-explorer: go ## The planners through crashes, failed writes and stale reads
	@tools/gotest explorer . $$(tools/packages explorer .)

.PHONY: conformance
conformance: go ## The plugin contract: the SDK, and the plugins in Go and JavaScript
	@tools/plugin-js
	@SLUICE_REQUIRE_NODE=1 tools/gotest conformance . $(ONCE) $$(tools/packages conformance .)

.PHONY: test-integration
test-integration: prerequisites ## Against a real API server, without nodes
	@tools/gotest integration cluster $(ONCE) $$(tools/packages integration cluster)

.PHONY: test-e2e
test-e2e: prerequisites images ## What users do, on real nodes
	@tools/gotest e2e cluster $(ONCE) $$(tools/packages e2e cluster)

.PHONY: test-sanity
test-sanity: prerequisites ## The CSI driver against the CSI project's own suite
	@tools/gotest csi-sanity cluster $(ONCE) $$(tools/packages sanity cluster)

##@ Figures (Linux, root)

.PHONY: bench
bench: bench-population ## Every benchmark, one line a figure

.PHONY: bench-population
bench-population: prerequisites images ## How claims are filled; smaller by ARGS="--claims=100 --settled=1000 --runs=5"
	@tools/go-run sluice-bench population $(ARGS)

##@ The rest

.PHONY: prerequisites
prerequisites: go ## Install what clusters need from the machine and build Kubernetes
	@tools/go-run sluice-cluster prerequisites

.PHONY: lint-selftest
lint-selftest: tools ## Break each rule of .golangci.yml and see it reported
	@tools/gotest lint-selftest tools -count=1 ./lintrules
	@touch $(BUILD)/lint-selftest

# The self-test is part of lint, but only when something changed it.
$(BUILD)/lint-selftest: .golangci.yml tools/go.sum $(wildcard tools/lintrules/*) | tools
	@$(MAKE) lint-selftest

.PHONY: tools
tools: go $(TOOLBIN)/.built ## Build the linter and the generators

$(TOOLBIN)/.built: tools/go.mod tools/go.sum $(wildcard tools/protogen/*.go)
	@echo "tools: building golangci-lint and the generators (once, a few minutes)"
	@mkdir -p $(TOOLBIN)
	@cd tools && go build -o $(TOOLBIN)/ tool
	@touch $@

.PHONY: go
go:
	@tools/require-go

.PHONY: clean
clean: ## Remove what was built; end clusters first
	@if [ -x $(BIN)/sluice-cluster ]; then $(BIN)/sluice-cluster down; fi
	rm -rf $(BUILD)
