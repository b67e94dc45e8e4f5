VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
JOBS ?= $(shell nproc)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# Distributions that already have commands of these names can rename the tools:
# bpf-execsnoop (TOOL_PREFIX=bpf-) or execsnoop-bpfcc (TOOL_SUFFIX=-bpfcc).
TOOL_PREFIX ?=
TOOL_SUFFIX ?=

# The output of `make generate`, as git pathspecs.
GENERATED := '*_bpfel*.go' '*_bpfel*.o' '*_bpfel*.o.gz' 'man/*' 'docs/schema/*' tools/instructions.txt 'internal/value/syscalls_*.go'

.PHONY: all generate docs check-generated new lint test test-kernels test-fleet bench stacks truth install clean

# Needs only Go: the BPF objects are in the tree.
all:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/corescope ./cmd/corescope-agent
	find bin -type l -delete
	names=$$(bin/corescope list --names) && \
		for name in kubectl-corescope $$names; do ln -s corescope "bin/$$name" || exit; done

generate:
	scripts/toolchain.sh
	packages=$$(go list -e ./...) && echo "$$packages" | xargs -n 8 -P $(JOBS) go generate
	$(MAKE) docs

# Documentation generated from the definitions of the tools. Its files are listed in GENERATED,
# except the README, which is generated in part.
docs:
	scripts/docs.sh

# Generated files are removed first, which finds files that nothing generates any more.
check-generated:
	git ls-files -z -- $(GENERATED) | xargs -0 rm -f
	$(MAKE) generate
	git diff --exit-code --stat -- $(GENERATED) README.md
	new=$$(git ls-files --others --exclude-standard -- $(GENERATED)) && \
		if [ -n "$$new" ]; then echo "not committed: $$new"; exit 1; fi

# Create a tool from internal/template: make new TOOL=x.
new:
	scripts/new.sh "$(TOOL)"

# clang-format, staticcheck and the race detector; part of make test.
lint:
	scripts/lint.sh

test:
	scripts/test.sh

# The live tests on other kernels, in virtual machines.
test-kernels:
	go run ./test/kernels

# Cost of corescope and of its peers under the same loads; writes docs/benchmarks.md.
bench:
	go run ./test/bench

# Stack traces of profile and its peers compared with known ones; writes docs/stacks.md.
stacks:
	go run ./test/stacks

# Results of the tools compared with independent references; writes docs/truth.md.
truth:
	test/truth/install.sh
	go run ./test/truth

# The agent with a real Prometheus and OpenTelemetry Collector, which are installed in the user's cache.
test-fleet:
	scripts/fleet.sh
	CGO_ENABLED=0 go test -count=1 -v ./test/fleet

bin/corescope:
	$(MAKE) all

install: bin/corescope
	install -D -m 755 bin/corescope "$(DESTDIR)$(BINDIR)/corescope"
	install -D -m 755 bin/corescope-agent "$(DESTDIR)$(BINDIR)/corescope-agent"
	ln -sf corescope "$(DESTDIR)$(BINDIR)/kubectl-corescope"
	install -D -m 644 man/man8/corescope-agent.8 "$(DESTDIR)$(MANDIR)/man8/corescope-agent.8"
	install -D -m 644 man/man1/corescope.1 "$(DESTDIR)$(MANDIR)/man1/corescope.1"
	install -d "$(DESTDIR)$(BASHDIR)" "$(DESTDIR)$(ZSHDIR)" "$(DESTDIR)$(FISHDIR)"
	bin/corescope completion bash >"$(DESTDIR)$(BASHDIR)/corescope"
	bin/corescope completion zsh >"$(DESTDIR)$(ZSHDIR)/_corescope"
	bin/corescope completion fish >"$(DESTDIR)$(FISHDIR)/corescope.fish"
	names=$$(bin/corescope list --names) && for name in $$names; do \
		given="$(TOOL_PREFIX)$$name$(TOOL_SUFFIX)"; \
		ln -sf corescope "$(DESTDIR)$(BINDIR)/$$given" && \
		ln -sf corescope "$(DESTDIR)$(BASHDIR)/$$given" && \
		ln -sf corescope.fish "$(DESTDIR)$(FISHDIR)/$$given.fish" && \
		if [ -h "man/man8/$$name.8" ]; then \
			tool=$$(basename "$$(readlink "man/man8/$$name.8")" .8) && \
			ln -sf "$(TOOL_PREFIX)$$tool$(TOOL_SUFFIX).8" "$(DESTDIR)$(MANDIR)/man8/$$given.8"; \
		else \
			install -D -m 644 "man/man8/$$name.8" "$(DESTDIR)$(MANDIR)/man8/$$given.8"; \
		fi || exit; done

clean:
	rm -rf bin
