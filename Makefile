# The targets are thin: what they do is in scripts/, which .ci/run calls too.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MODULES := $(shell scripts/modules.sh)

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: ## Run everything that CI runs
	.ci/run

.PHONY: quick
quick: ## Run the checks that find most mistakes, while you work
	scripts/check-sources.sh
	go vet work
	go run ./tools/shape
	go test . ./docs ./client/...

.PHONY: test
test: ## Run the tests of all modules
	go test work

.PHONY: docs
docs: ## Write the generated pages, and check all pages, their programs and their commands
	go run ./tools/mutants -write
	go test ./internal/rules -run Docs -write
	go test ./docs -run 'Options|Profiles' -write
	go test ./docs ./examples/hello ./examples/payments

.PHONY: release-check
release-check: ## Tell what has changed in the API since the last release; check changelog and versions
	scripts/release-check.sh

.PHONY: race
race: ## Run them in random order, with the race detector where it can find something
	scripts/test.sh

.PHONY: repeat
repeat: ## Run the README's test command N (10) times plain, beside busy loops, and on one core
	scripts/repeat.sh $(or $(N),10)

.PHONY: cover
cover: ## Tell how much of the root module the tests reach
	go test -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -n 1

.PHONY: lint
lint: ## Run golangci-lint; builds it first if it is not there
	scripts/lint.sh

.PHONY: shape
shape: ## Print the measures of the shape and check their limits, all imports and doc links
	go run ./tools/shape

.PHONY: openapi
openapi: ## Lint the OpenAPI documents of package policy
	scripts/check-openapi.sh

.PHONY: rules
rules: ## Check the Prometheus rules and the dashboard, and test the rules, with promtool
	scripts/promtool.sh

.PHONY: fmt
fmt: ## Format all Go files
	go tool gofumpt -w .

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (20) seconds
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## Soak processes in faults for SOAK (10m); SEED repeats a plan
	REDIS_REQUIRED=1 SOAK=$(or $(SOAK),10m) go test -v -count=1 -timeout=2h -run='^TestSoak$$' ./internal/soak

.PHONY: mutants
mutants: ## Take each protection out and see tests die; MUTANT=regexp selects
	go run ./tools/mutants -run '$(MUTANT)'

.PHONY: bench
bench: ## Print the tables of docs/explanation/performance.md: ROUNDS (9) of SHARE (300ms) a row
	cd internal/bench && REDIS_REQUIRED=1 go test -v -timeout 60m -run TestTable -rounds $(or $(ROUNDS),9) -share $(or $(SHARE),300ms) -heap $(or $(HEAP),64) -live 1000000 -only '$(TABLE)'

.PHONY: microbench
microbench: ## Run the benchmarks BENCH (.) and summarize COUNT (6) runs of each
	REDIS_REQUIRED=1 go test -run='^$$' -bench='$(or $(BENCH),.)' -benchmem -count=$(or $(COUNT),6) ./... | tee bench.out
	go tool benchstat bench.out

.PHONY: newest
newest: ## Test the modules for frameworks with the newest frameworks; needs network
	scripts/newest.sh

.PHONY: platforms
platforms: ## Type-check the root module for windows/386, macOS and FreeBSD; test stored forms on linux/386
	scripts/check-platforms.sh

.PHONY: versions
versions: ## Run processes of an earlier commit and of the tree on the same stores
	scripts/check-versions.sh

.PHONY: tidy
tidy: ## Tidy the go.mod file of each module
	for dir in $(MODULES); do (cd $$dir && GOWORK=off go mod tidy) || exit; done

.PHONY: tidy-check
tidy-check: ## Fail if a module is not tidy, or does not build outside the workspace
	scripts/check-modules.sh
