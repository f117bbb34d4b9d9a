# Short names for what cargo, kubectl and docker do. Nothing happens here that they could not do without it.

# Name of the operator's image: what docker-build makes, docker-push pushes and deploy runs.
IMG ?= trainingjob-operator:latest
# Any cluster: the current context of KUBECONFIG, as always.
KUBECTL ?= kubectl
CARGO ?= cargo
# docker, podman or anything else that takes the same arguments.
CONTAINER_TOOL ?= docker

BASE := kubernetes/base
CRD := $(BASE)/trainingjob-crd.yaml
NAMESPACE := trainingjob-system
# The image that $(BASE)/deployment.yaml names.
BASE_IMG := trainingjob-operator:latest

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Development

.PHONY: generate
generate: manifests ## Everything that is generated from the types (the same as manifests)

.PHONY: manifests
manifests: ## Write the CRD from the Rust types
	$(CARGO) xtask manifests

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: vet
vet: ## Look for mistakes (clippy)
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: deny
deny: ## Check licences and sources of the dependencies (cargo-deny, offline)
	$(CARGO) deny --offline check bans licenses sources

.PHONY: test
test: ## Tests that need nothing but Rust
	$(CARGO) xtask test

.PHONY: test-cluster
test-cluster: ## The same, and those against a real Kubernetes
	$(CARGO) xtask test --cluster

.PHONY: bench
bench: ## Measure the operator on a real API server
	$(CARGO) xtask bench

.PHONY: cluster-up
cluster-up: ## Start a Kubernetes on this machine
	$(CARGO) xtask cluster up

.PHONY: cluster-down
cluster-down: ## Stop it
	$(CARGO) xtask cluster down

##@ Build

.PHONY: build
build: ## Build the binary (target/release/trainyard)
	$(CARGO) build --release --locked -p trainyard

.PHONY: run
run: ## Run the operator here, against the cluster of KUBECONFIG
	$(CARGO) run --release --locked -p trainyard -- operator

.PHONY: docker-build
docker-build: ## Build the image IMG
	$(CONTAINER_TOOL) build -t $(IMG) .

.PHONY: docker-push
docker-push: ## Push the image IMG
	$(CONTAINER_TOOL) push $(IMG)

##@ Cluster

.PHONY: install
install: ## Install the CRD
	$(KUBECTL) apply -f $(CRD)

.PHONY: uninstall
uninstall: ## Remove the CRD, and with it every TrainingJob (while the operator still runs: it cleans up after them)
	$(KUBECTL) delete --ignore-not-found -f $(CRD)

.PHONY: deploy
deploy: ## Install the CRD and the operator with the image IMG
	$(KUBECTL) kustomize $(BASE) | sed 's#image: $(BASE_IMG)$$#image: $(IMG)#' | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Remove the operator; the CRD and the jobs stay
	$(KUBECTL) delete --ignore-not-found -n $(NAMESPACE) -f $(BASE)/deployment.yaml -f $(BASE)/service.yaml -f $(BASE)/rbac.yaml -f $(BASE)/stacks-rbac.yaml
	$(KUBECTL) delete --ignore-not-found -f $(BASE)/namespace.yaml
