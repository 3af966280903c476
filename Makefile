# efs-stunnel: `make help` lists the targets.
SHELL := /bin/bash -eu -o pipefail
.DEFAULT_GOAL := help

MODULES  := . hack/lab hack/release test/bench test/histories
TOOL     := go tool -modfile=$(CURDIR)/hack/tools/go.mod
LAB      := $(CURDIR)/bin/lab
LAB_NAME ?= default
# gotestsum prints the output of what failed only, and writes for hack/test what took how long.
TESTED  := $(CURDIR)/bin/test
TESTSUM := $(CURDIR)/bin/gotestsum
# The integration tests wait more than they work, so two halves run at once, each with a cluster of
# its own. Like unit tests, they run again when the code, the files that they read or the cluster's
# programs have changed.
INTEGRATION = $(TESTSUM) --jsonfile $(TESTED)/integration-$(1).json -- -vet=off -tags integration -p 1 -parallel 6 -timeout 2h
HALF        := Volume|Claim
E2E         := PROMETHEUS_PATH=$$($(LAB) prometheus) $(TESTSUM) --format standard-verbose --jsonfile $(TESTED)/e2e.json -- -vet=off -tags e2e -count=1 -timeout 5h -parallel 4 ./test/e2e
# What the race detector needs is compiled for it alone, so without what only a debugger wants, and the libraries
# without inlining: a third less work. Nothing here runs go vet, which lint and check do.
RACE := -race -gcflags=all=-dwarf=false $(foreach from,k8s.io sigs.k8s.io github.com,'-gcflags=$(from)/...=-l -dwarf=false')
# Another version of Kubernetes than 1.37 for the lab and for integration: KUBE=1.34, 1.35 or 1.36.
KUBE ?= $(LAB_KUBERNETES)
# Extra flags of lab-up, for example LAB_FLAGS="--audit --nodes 3".
LAB_FLAGS ?=
# Extra flags of e2e, for example E2E_FLAGS=-ipv6.
E2E_FLAGS ?=
# Settings of acceptance, which docs/tasks/acceptance.md explains: CLASS, IMAGE, NAMESPACE, ACCESS_POINT, REPORT,
# LIMIT, and which scenarios to leave out: ACCEPTANCE_FLAGS="-skip TestAcceptance/.*drained".
LIMIT ?= 5m
ACCEPTANCE_FLAGS ?=
# Flags of bench, for example BENCH_FLAGS="-parts burst -rounds 1".
BENCH_FLAGS ?=

export LAB_NAME
export LAB_KUBERNETES := $(KUBE)
# Modules are what their go.mod says, whatever a developer's workspace says.
export GOWORK := off
# The cluster's programs and the images are built without cgo. With the same flags here, what all
# of them import is compiled once.
export CGO_ENABLED := 0

##@ Everyday

.PHONY: check
check: lab ## Give a verdict on a change within two minutes: what it has, and what imports that; BASE=… is where it began
	hack/check

.PHONY: quick
quick: ## Test what a small change can break, with nothing but Go
	go test ./pkg/volumes/... ./hack/docs ./test/docs ./test/layout ./test/manifests

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: unit
unit: lab ## Run the tests that need no cluster
	STUNNEL_PATH=$$($(LAB) stunnel); NFS_SERVER_ROOT=$$($(LAB) nfs-server); PROMETHEUS_PATH=$$($(LAB) prometheus); \
	export STUNNEL_PATH NFS_SERVER_ROOT PROMETHEUS_PATH; \
	for m in $(MODULES); do go test -C $$m ./...; done

.PHONY: integration-long
integration-long: lab ## Kill the manager before and after each of its writes; more agents, access points and hostile objects
	KUBE_PROGRAMS=$$($(LAB) components); export KUBE_PROGRAMS EFS_STUNNEL_LONG=1; \
	go test -tags integration -parallel 6 -count=1 -timeout 2h -run 'TestManagerThatCrashes|TestMany|TestHostileObjects' ./test/integration

.PHONY: unit-long
unit-long: lab ## Run those of tunnels that take minutes: 10,000 connections, 1,000 tunnels, pauses
	STUNNEL_PATH=$$($(LAB) stunnel); $(LAB) strace; export STUNNEL_PATH EFS_STUNNEL_LONG=1; \
	go test -count=1 -v -run 'TestHandOverRefusesNoConnection|TestPauses|TestMemoryOfUnusedTunnels|TestSystemCallsOfARequest' ./pkg/node/supervise ./cmd/nodeagent-supervise ./pkg/stunnelcfg

.PHONY: browser
browser: lab ## Test the plugin's dashboard in a headless browser, which is installed
	EFS_STUNNEL_BROWSER=$$($(LAB) browser); export EFS_STUNNEL_BROWSER; \
	go test -count=1 -v -run Browser ./pkg/plugin/dashboard

.PHONY: dockerfile
dockerfile: lab ## Build hack/images/Dockerfile with buildah, which is installed, and compare the images with a release's
	EFS_STUNNEL_BUILDAH=$$($(LAB) buildah); export EFS_STUNNEL_BUILDAH; \
	go test -C hack/release -count=1 -timeout 3h -v -run TestDockerfile .

.PHONY: testsum
testsum:
	@mkdir -p $(TESTED)
	go build -C hack/tools -o $(TESTSUM) gotest.tools/gotestsum

# Three packages at once, because those of the agent and of its supervisor wait more than they work, for minutes.
.PHONY: race
race: lab testsum ## Run the unit tests, those with goroutines under the race detector and the lab's with a real NFS server
	LAB_GANESHA_ROOT=$$($(LAB) prepare); STUNNEL_PATH=$$($(LAB) stunnel); NFS_SERVER_ROOT=$$($(LAB) nfs-server); \
	PROMETHEUS_PATH=$$($(LAB) prometheus); failed=0; export LAB_GANESHA_ROOT STUNNEL_PATH NFS_SERVER_ROOT PROMETHEUS_PATH; \
	{ bad=0; for m in hack/lab hack/release test/bench test/histories; do \
		(cd $$m && $(TESTSUM) --jsonfile $(TESTED)/race-$${m##*/}.json -- -vet=off ./...) || bad=1; done; exit $$bad; } & others=$$!; \
	CGO_ENABLED=1 GOGC=off GOMEMLIMIT=1500MiB go build $(RACE) $$(go list -deps -test \
		-f '{{if not .ForTest}}{{with .Module}}{{if not .Main}}{{$$.ImportPath}}{{end}}{{end}}{{end}}' $$(hack/concurrent)); \
	CGO_ENABLED=1 $(TESTSUM) --jsonfile $(TESTED)/race-1.json -- $(RACE) -vet=off -p 3 -timeout 1h $$(hack/concurrent) || failed=1; \
	$(TESTSUM) --jsonfile $(TESTED)/race-2.json -- -vet=off -timeout 1h $$(hack/concurrent -v) || failed=1; \
	wait $$others || failed=1; \
	cat $(TESTED)/race-*.json > $(TESTED)/race.json; \
	exit $$failed

.PHONY: integration
integration: lab testsum ## Run the control loops on a real apiserver, with simulated nodes
	KUBE_PROGRAMS=$$($(LAB) components); export KUBE_PROGRAMS; failed=0; \
	{ bad=0; $(call INTEGRATION,1) -run '$(HALF)' ./test/integration || bad=1; \
		(cd hack/release && $(call INTEGRATION,3) -run 'TestHelm|TestApplying' ./internal/...) || bad=1; exit $$bad; } & half=$$!; \
	$(call INTEGRATION,2) -skip '$(HALF)' ./test/integration/... || failed=1; \
	wait $$half || failed=1; \
	cat $(TESTED)/integration-?.json > $(TESTED)/integration.json; \
	exit $$failed

.PHONY: fmt
fmt: ## Format every Go file
	$(TOOL) golangci-lint fmt

.PHONY: lint
lint: ## Check format, with go vet, staticcheck and others in golangci-lint, and that git has sources only
	@! git ls-files --eol | grep '^i/-text' || { echo "git has binary files"; exit 1; }
	$(TOOL) golangci-lint fmt --diff
	for m in $(MODULES); do cd $(CURDIR)/$$m; $(TOOL) golangci-lint run; done

.PHONY: vulnerabilities
vulnerabilities: ## Ask the Go vulnerability database about what the programs call; VULN_DB=… names a copy of it
	for m in $(MODULES); do cd $(CURDIR)/$$m; $(TOOL) govulncheck $(if $(VULN_DB),-db "$(VULN_DB)") ./...; done

.PHONY: generate
generate: ## Write what is generated: parts of docs/reference, pictures
	go run ./hack/docs

.PHONY: verify
verify: ## Check that what is generated (docs/reference, pictures, go.mod, go.sum) is up to date
	go run ./hack/docs -diff
	for m in $(MODULES) hack/lab/components hack/tools; do (cd $$m && go mod tidy -diff); done

##@ Lab

.PHONY: lab
lab: ## Build bin/lab
	@test -x $(LAB) || echo "Building bin/lab, which makes labs: a minute on a new machine"
	@out=$$(GOGC=off GOMEMLIMIT=1500MiB go build -C hack/lab -o $(LAB) . 2>&1) || { echo "$$out" >&2; exit 1; }

.PHONY: lab-up
lab-up: lab ## Bring up the lab $(LAB_NAME): a cluster with real nodes and an EFS stand-in
	$(LAB) up $(LAB_FLAGS)

.PHONY: lab-down
lab-down: lab ## Stop and remove it
	$(LAB) down

.PHONY: lab-status
lab-status: lab ## Show its parts
	$(LAB) status

.PHONY: lab-race
lab-race: lab ## Run the lab's own tests under the race detector
	LAB_GANESHA_ROOT=$$($(LAB) prepare); STUNNEL_PATH=$$($(LAB) stunnel); \
	export LAB_GANESHA_ROOT STUNNEL_PATH CGO_ENABLED=1; \
	go test -C hack/lab -race -timeout 1h ./...

.PHONY: lab-smoke
lab-smoke: lab ## Prove a lab of its own with plain manifests, then remove it
	go test -C hack/lab -tags smoke -count=1 -timeout 60m -v ./smoke

##@ Product

.PHONY: plugin
plugin: ## Build bin/kubectl-efs_stunnel, the plugin of kubectl
	@out=$$(go build -o bin/kubectl-efs_stunnel ./cmd/kubectl-efs_stunnel 2>&1) || { echo "$$out" >&2; exit 1; }

.PHONY: images
images: ## Build the images for amd64 and arm64, or PLATFORMS=…, and push them: REGISTRY=… TAG=…, for FIPS GOFIPS140=… AGENT_BASE=…
	hack/images/push

.PHONY: lab-images
lab-images: lab ## Build them for the lab's registry, without a container engine
	hack/images/lab

.PHONY: demo
demo: lab plugin ## Show the whole system at work in the lab, which is left running
	@hack/demo/demo

.PHONY: arm64
arm64: lab ## Run the programs of the images for arm64, and the product's tests for arm64, under QEMU, which is installed
	EFS_STUNNEL_ARM64=$$($(LAB) arm64); export EFS_STUNNEL_ARM64; \
	go test -C hack/release -count=1 -timeout 3h -v -run TestArm64 .

.PHONY: e2e
e2e: lab plugin testsum ## Prove each promise of the product on real nodes, with its own manifests and images
	$(E2E) $(E2E_FLAGS)

.PHONY: e2e-long
e2e-long: lab-race lab-smoke unit-long integration-long browser dockerfile plugin testsum ## Prove the lab, then the product with more features and more faults: before a release
	$(E2E) -long

.PHONY: acceptance
acceptance: plugin ## Prove an installation on the cluster of KUBECONFIG, as bin/acceptance.md reports: CLASS=… IMAGE=…
	go test -tags acceptance -count=1 -timeout 5h -parallel 4 -v ./test/e2e -limit $(LIMIT) $(ACCEPTANCE_FLAGS)

.PHONY: bench
bench: lab ## Measure the manager beside the field's library; docs/contribute/benchmarks.md says how to read it
	programs=$$($(LAB) components); \
	go build -o bin/manager ./cmd/manager; \
	go build -C test/bench -o $(CURDIR)/bin/bench .; \
	go build -C test/bench -o $(CURDIR)/bin/nfsops ./nfsops/cmd; \
	bin/bench -programs "$$programs" -manager bin/manager -json bin/bench.json $(BENCH_FLAGS)

##@ Release

RELEASE := go run -C hack/release -exec "env -C $(CURDIR)" .
# The version, where the images will be, and from where users will download dist.
RELEASE_FLAGS = -version="$(VERSION)" -registry="$(REGISTRY)" -download-url="$(DOWNLOAD_URL)" -cosign-key="$(COSIGN_KEY)"
# The address of the source code, which the chart names.
RELEASE_FLAGS += -repository="$(REPOSITORY)"

.PHONY: release
release: ## Write dist, of the commit with the tag VERSION=v1.2.3: REGISTRY=… DOWNLOAD_URL=…, COSIGN_KEY=… to sign
	$(RELEASE) $(RELEASE_FLAGS)

.PHONY: release-push
release-push: ## Push the images and the chart of dist to REGISTRY=…, with the tag VERSION=…
	$(RELEASE) $(RELEASE_FLAGS) -push

.PHONY: chart
chart: ## Write the Helm chart to bin, of the working folder and without a tag of git, for images of REGISTRY=… TAG=…
	$(RELEASE) $(RELEASE_FLAGS) -chart -tag="$(TAG)" -out=bin

# Not in hack/tools, whose requirements are resolved together: the scanner has hundreds of its own.
SCANNER := github.com/google/osv-scanner/v2/cmd/osv-scanner@v2.5.1

.PHONY: scan
scan: ## Ask the OSV database about the Debian packages and Go modules of dist; SCAN_DB=… is a folder with a copy of it
	@ls dist/*.spdx.json > /dev/null 2>&1 || { echo "want dist, which make release writes"; exit 1; }
	go run $(SCANNER) scan source $(if $(SCAN_DB),--offline-vulnerabilities --local-db-path "$(SCAN_DB)") $(foreach file,$(wildcard dist/*.spdx.json),-L $(file))

##@ Everything

.PHONY: test
test: ## Run every test but those of e2e-long, and say what took how long
	@hack/test

.PHONY: test-fast
test-fast: unit integration ## Run those that need no lab

.PHONY: ci
ci: ## What CI runs: lint, generated files, every test
	$(MAKE) lint
	$(MAKE) verify
	$(MAKE) test
	@git diff --exit-code || { echo "make ci changed files that are in git: commit what it made"; exit 1; }

.PHONY: clean
clean: ## Remove what was built here; the cache of the lab stays
	rm -rf bin dist
