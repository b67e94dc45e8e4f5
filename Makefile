VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
JOBS ?= $(shell nproc)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
UNITDIR ?= $(PREFIX)/lib/systemd/system
# The agent reads /etc/corescope/agent.yaml: SYSCONFDIR is /etc for every PREFIX.
SYSCONFDIR ?= /etc
# Distributions that already have commands of these names can rename the tools:
# bpf-execsnoop (TOOL_PREFIX=bpf-) or execsnoop-bpfcc (TOOL_SUFFIX=-bpfcc).
TOOL_PREFIX ?=
TOOL_SUFFIX ?=

# All names of tools. They come from the manual pages, because the program can be one for another
# architecture.
NAMES = $(filter-out corescope-agent,$(basename $(notdir $(wildcard man/man8/*.8))))
GIVEN_NAMES = $(NAMES:%=$(TOOL_PREFIX)%$(TOOL_SUFFIX))

# The output of `make generate`, as git pathspecs.
GENERATED := '*_bpfel*.go' '*_bpfel*.o' '*_bpfel*.o.gz' 'man/*' 'docs/schema/*' docs/cheatsheet.md 'packaging/tldr/*' tools/instructions.txt tools/objects.txt 'internal/value/syscalls_*.go'

.PHONY: all generate docs check-generated new lint test test-kernels test-fleet bench stacks truth install dist site clean

# Needs only Go: the BPF objects are in the tree.
all:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/corescope ./cmd/corescope-agent
	find bin -type l -delete
	for name in kubectl-corescope $(NAMES); do ln -s corescope "bin/$$name" || exit; done

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

# The agent with a real Prometheus and OpenTelemetry Collector, or FLEET=kubernetes, which are installed in the
# user's cache.
FLEET = prometheus collector
test-fleet:
	scripts/fleet.sh $(FLEET)
	CGO_ENABLED=0 FLEET="$(FLEET)" go test -count=1 -v -timeout 30m ./test/fleet

bin/corescope:
	$(MAKE) all

# Runs nothing of bin/, so it works for another architecture (make GOARCH=arm64 all install). An existing
# configuration is kept. The unit has the path of a distribution, which is replaced by BINDIR.
install: bin/corescope
	install -D -m 755 bin/corescope "$(DESTDIR)$(BINDIR)/corescope"
	install -D -m 755 bin/corescope-agent "$(DESTDIR)$(BINDIR)/corescope-agent"
	ln -sf corescope "$(DESTDIR)$(BINDIR)/kubectl-corescope"
	install -d "$(DESTDIR)$(MANDIR)/man1" "$(DESTDIR)$(MANDIR)/man8" "$(DESTDIR)$(BASHDIR)" \
		"$(DESTDIR)$(ZSHDIR)" "$(DESTDIR)$(FISHDIR)" "$(DESTDIR)$(UNITDIR)" "$(DESTDIR)$(SYSCONFDIR)/corescope"
	gzip -9n <man/man1/corescope.1 >"$(DESTDIR)$(MANDIR)/man1/corescope.1.gz"
	gzip -9n <man/man8/corescope-agent.8 >"$(DESTDIR)$(MANDIR)/man8/corescope-agent.8.gz"
	sed 's/@NAMES@/corescope $(GIVEN_NAMES)/' internal/command/completion/bash >"$(DESTDIR)$(BASHDIR)/corescope"
	sed 's/@NAMES@/corescope $(GIVEN_NAMES)/' internal/command/completion/zsh >"$(DESTDIR)$(ZSHDIR)/_corescope"
	sed 's/@NAMES@/corescope $(GIVEN_NAMES)/' internal/command/completion/fish >"$(DESTDIR)$(FISHDIR)/corescope.fish"
	sed 's|/usr/bin/|$(BINDIR)/|' deploy/systemd/corescope-agent.service >"$(DESTDIR)$(UNITDIR)/corescope-agent.service"
	[ -e "$(DESTDIR)$(SYSCONFDIR)/corescope/agent.yaml" ] || \
		install -m 644 internal/agent/default.yaml "$(DESTDIR)$(SYSCONFDIR)/corescope/agent.yaml"
	for name in $(NAMES); do \
		given="$(TOOL_PREFIX)$$name$(TOOL_SUFFIX)"; \
		page="$(DESTDIR)$(MANDIR)/man8/$$given.8.gz"; \
		ln -sf corescope "$(DESTDIR)$(BINDIR)/$$given" && \
		ln -sf corescope "$(DESTDIR)$(BASHDIR)/$$given" && \
		ln -sf corescope.fish "$(DESTDIR)$(FISHDIR)/$$given.fish" && \
		if [ -h "man/man8/$$name.8" ]; then \
			tool=$$(basename "$$(readlink "man/man8/$$name.8")" .8) && \
			ln -sf "$(TOOL_PREFIX)$$tool$(TOOL_SUFFIX).8.gz" "$$page"; \
		else \
			gzip -9n <"man/man8/$$name.8" >"$$page"; \
		fi || exit; done

# Packages, tarballs and an image for both architectures, in dist/ (scripts/dist).
dist:
	scripts/dist.sh

# The documentation as static HTML with search, in site/, or in SITE. The links are checked.
SITE = site
site:
	[ "$(SITE)" != site ] || rm -rf site
	CGO_ENABLED=0 go -C scripts/site run . "$(CURDIR)" "$(abspath $(SITE))"

clean:
	rm -rf bin
