VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
JOBS ?= $(shell nproc)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
# Distributions that have a command of the same name can give ours another:
# bpf-execsnoop (TOOL_PREFIX=bpf-) or execsnoop-bpfcc (TOOL_SUFFIX=-bpfcc).
TOOL_PREFIX ?=
TOOL_SUFFIX ?=

# What `make generate` makes: git's pathspecs.
GENERATED := '*_bpfel*.go' '*_bpfel*.o'

.PHONY: all generate docs check-generated test test-kernels install clean

# Go is all it takes: the BPF objects are in the tree.
all:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-ldflags '-s -w -X main.version=$(VERSION)' -o bin/corescope ./cmd/corescope
	find bin -type l -delete
	names=$$(bin/corescope list --names) && \
		for name in $$names; do ln -s corescope "bin/$$name" || exit; done

generate:
	scripts/toolchain.sh
	packages=$$(go list -e ./...) && echo "$$packages" | xargs -n 8 -P $(JOBS) go generate
	$(MAKE) docs

# Documentation made from the tools' own words; its files belong in GENERATED.
docs:

# Everything generated is made anew, so that what nothing makes any more shows up too.
check-generated:
	git ls-files -z -- $(GENERATED) | xargs -0 rm -f
	$(MAKE) generate
	git diff --exit-code --stat -- $(GENERATED)
	new=$$(git ls-files --others --exclude-standard -- $(GENERATED)) && \
		if [ -n "$$new" ]; then echo "not committed: $$new"; exit 1; fi

test:
	scripts/test.sh

# The live tests on other kernels, in virtual machines.
test-kernels:
	test/kernels/run.sh

bin/corescope:
	$(MAKE) all

install: bin/corescope
	install -D -m 755 bin/corescope "$(DESTDIR)$(BINDIR)/corescope"
	names=$$(bin/corescope list --names) && for name in $$names; do \
		ln -sf corescope "$(DESTDIR)$(BINDIR)/$(TOOL_PREFIX)$$name$(TOOL_SUFFIX)" || exit; done

clean:
	rm -rf bin
