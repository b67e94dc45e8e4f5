package otlp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/value"
)

// fields returns the values of a field of a message.
func fields(t *testing.T, message []byte, field protowire.Number) (out [][]byte) {
	t.Helper()
	for rest := message; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			t.Fatalf("malformed message %x", message)
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[n:])
		if size < 0 {
			t.Fatalf("malformed message %x", message)
		}
		content := rest[n : n+size]
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(content)
		}
		if number == field {
			out = append(out, content)
		}
		rest = rest[n+size:]
	}
	return out
}

func one(t *testing.T, message []byte, path ...protowire.Number) []byte {
	t.Helper()
	for _, field := range path {
		all := fields(t, message, field)
		if len(all) != 1 {
			t.Fatalf("%d fields %d of %v", len(all), field, path)
		}
		message = all[0]
	}
	return message
}

func numbers(b []byte) (out []uint64) {
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		out, b = append(out, v), b[n:]
	}
	return out
}

// number returns a number, or 0 if it is left out.
func number(t *testing.T, message []byte, field protowire.Number) uint64 {
	t.Helper()
	if len(fields(t, message, field)) == 0 {
		return 0
	}
	return numbers(one(t, message, field))[0]
}

func exampleProfile() *flame.Profile {
	frame := func(name string, kernel bool, module string, line uint32) flame.Frame {
		f := flame.FrameOf(&value.Frame{Symbol: name, Module: module, Kernel: kernel, BuildID: "abc", Line: line, Address: 0x1234})
		f.Name = name
		if line > 0 {
			f.Source.File = "main.c"
		}
		return f
	}
	return &flame.Profile{
		Unit: flame.Samples, Period: 10_101_010, Begin: time.Unix(1_700_000_000, 0), Length: 10 * time.Second,
		Samples: []flame.Sample{
			{Weight: 300, Frames: []flame.Frame{{Name: "nginx", Kind: flame.Label}, frame("main", false, "/bin/x", 7), frame("read", true, "", 0)}},
			{Weight: 5, Frames: []flame.Frame{{Name: "nginx", Kind: flame.Label}, frame("main", false, "/bin/x", 7)}},
			{Weight: 1},
		},
	}
}

func TestProfiles(t *testing.T) {
	var bodies [][]byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1development/profiles" {
			t.Errorf("%s: %v", r.URL, err)
		}
		bodies = append(bodies, body)
	}))
	defer server.Close()
	c := config(t, server.URL, SignalProfiles)
	c.Gzip = false
	p, err := NewProfiles(c, []Attribute{String("service.name", "corescope")}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	p.Export("profile", exampleProfile())
	p.Export("offcputime", &flame.Profile{})
	p.Export("offcputime", &flame.Profile{Unit: flame.Nanoseconds, Samples: []flame.Sample{{Weight: 3}}})
	closeIt(t, p)
	if s := p.Stats(); s.Accepted != 2 || len(bodies) != 2 {
		t.Fatalf("%+v", s)
	}
	body := bodies[0]
	if path := os.Getenv("PROFILE_FILE"); path != "" { // to look at it with other programs
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Error(err)
		}
	}

	dictionary := one(t, body, 2)
	var texts []string
	for _, b := range fields(t, dictionary, 5) {
		texts = append(texts, string(b))
	}
	locations, functions, stacks := fields(t, dictionary, 2), fields(t, dictionary, 3), fields(t, dictionary, 7)
	for i := range protowire.Number(7) {
		if all := fields(t, dictionary, i+1); len(all) == 0 || len(all[0]) != 0 {
			t.Errorf("entry 0 of table %d is not empty: %x", i+1, all)
		}
	}
	profile := one(t, body, 1, 2, 2)
	kind := func(b []byte) string { return texts[number(t, b, 1)] + "/" + texts[number(t, b, 2)] }
	if s, p := kind(one(t, profile, 1)), kind(one(t, profile, 5)); s != "samples/count" || p != "cpu/nanoseconds" || number(t, profile, 6) != 10_101_010 {
		t.Errorf("sample type %s, period type %s", s, p)
	}
	if number(t, profile, 4) != 1e10 || len(one(t, profile, 7)) != 16 {
		t.Errorf("profile %x", profile)
	}
	var got []string
	for _, sample := range fields(t, profile, 2) {
		var names []string
		if stack := stacks[number(t, sample, 1)]; len(stack) > 0 {
			for _, i := range numbers(one(t, stack, 1)) {
				function := functions[number(t, one(t, locations[i], 3), 1)]
				names = append(names, texts[number(t, function, 1)])
			}
		}
		got = append(got, strings.Join(names, "<"), formatUint(numbers(one(t, sample, 4))[0]))
	}
	if want := []string{"read<main<nginx", "300", "main<nginx", "5", "", "1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(locations) != 4 || len(functions) != 4 || len(fields(t, dictionary, 1)) != 2 {
		t.Errorf("%d locations, %d functions: not shared", len(locations), len(functions))
	}

	// Without a period, the period is 1 of the type of the samples.
	profile = one(t, bodies[1], 1, 2, 2)
	if number(t, profile, 6) != 1 || string(one(t, profile, 1)) != string(one(t, profile, 5)) {
		t.Errorf("profile %x", profile)
	}
}
