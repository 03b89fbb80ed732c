# Everything that is done with this tree. "make demo" and "make test" need only
# git, make and Go on Debian 12; what else they use they install themselves.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOL     = $(GO) tool -modfile=tools/go.mod
PKGS    ?= ./...
export CGO_ENABLED = 0

.PHONY: build deb demo test check soak bench fuzz generate need clean

build:
	$(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/bawn ./cmd/bawn

# A package for Debian and its kin, in bin/.
deb: need build
	packaging/build-deb bin/bawn "$(VERSION)" bin

# Shows the boundary to a newcomer: a private test internet, an agent that
# works, and the same agent trying to get data out.
demo: need build
	$(GO) run ./internal/demo -bawn bin/bawn

# Every ring of tests that this machine allows; BAWN_TESTS=all makes a skip a
# failure.
# Its reports (which clients work by which way) are shown at the end.
test: need
	@rm -rf bin/report && mkdir -p bin/report
	BAWN_REPORT=$(CURDIR)/bin/report $(GO) test -count=1 -timeout 25m $(PKGS)
	@cat bin/report/*.txt 2>/dev/null || true

# Format, vet, static analysis, layers and the race detector. The end-to-end
# packages drive other processes, in which the detector would see nothing. Tests
# that start themselves as other programs, often, do not wait a second for each
# to end, as the detector would have it.
check:
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "run gofmt -w on these files"; exit 1; }
	$(GO) vet ./... && (cd bench && $(GO) vet ./...) && cd internal/e2e/testdata/grpc && $(GO) vet ./...
	$(TOOL) staticcheck ./...
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -short -count=1 -timeout 20m $$($(GO) list ./... | grep -v -e /internal/e2e -e /internal/world -e /internal/demo)

# The full figures of what "make test" runs in small, seeded counts.
soak: need
	BAWN_SOAK=1 $(GO) test -count=1 -timeout 120m $(PKGS)

bench: need-bench build
	cd bench && $(GO) run . -bawn ../bin/bawn -rows "$(BENCH_ROWS)" $(BENCH_FLAGS)
	cd bench && $(GO) run . index $(INDEX_FLAGS)

# Each fuzz target for T. Inputs are not made shorter at length: where goroutines
# take part the coverage of an input varies, and that would take all the time.
T ?= 20s
fuzz:
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(T) -fuzzminimizetime 10x $$p || exit 1; done; done

generate:
	$(GO) generate ./...

# What the tests and the demo run besides Go. cc is for the race detector.
need:
	@sh scripts/need ip nft curl wget git node npm python3 py:h11 nsenter unshare setpriv mount useradd newgidmap \
		update-ca-certificates openssl dig iodined dns2tcpd ping ps tmux script cc \
		ssh psql swaks perl:Net::SSLeay nc.openbsd socat sslscan py:requests py:httpx py:h2 py:websockets py:cryptography \
		systemd-analyze lintian dpkg-deb man lexgrog fish zsh promtool

need-bench:
	@sh scripts/need ip ss nft nsenter setpriv unshare git openssl squid mitmdump

clean:
	rm -rf bin
