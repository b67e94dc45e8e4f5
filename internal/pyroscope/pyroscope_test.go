package pyroscope

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/push"
)

func example(unit flame.Unit, period uint64) *flame.Profile {
	return &flame.Profile{
		Title: "profile", Unit: unit, Period: period, Begin: time.Unix(1_700_000_000, 5e8), Length: 10 * time.Second,
		Samples: []flame.Sample{
			{Frames: []flame.Frame{{Name: "main"}, {Name: "work"}}, Weight: 7},
			{Frames: []flame.Frame{{Name: "main"}, {Name: "vfs_read", Kind: flame.Kernel}}, Weight: 3},
		},
	}
}

func TestProfiles(t *testing.T) {
	requests := make(chan *http.Request, 10)
	weights := make(chan int64, 10)
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if attempts++; attempts == 1 {
			w.WriteHeader(503)
			return
		}
		p, err := profile.Parse(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		requests <- r
		weights <- p.Sample[0].Value[0] + p.Sample[1].Value[0]
	}))
	defer server.Close()
	labels := []metric.Label{
		{Name: "host", Value: "h"}, {Name: "unit", Value: "a{b}=\"c\",\n\xff"}, {Name: "pod", Value: ""}, {Name: "Bad", Value: "x"},
	}
	p, err := New(server.URL+"/", labels, push.Options{Gzip: true, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*flame.Profile{example(flame.Samples, 10_101_010), example(flame.Nanoseconds, 0), {}} {
		if err := p.Export("profile", e); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, rate := range []string{"99", ""} {
		r := <-requests
		q := r.URL.Query()
		if r.URL.Path != "/ingest" || q.Get("name") != "corescope.profile{host=h,unit=a_b___c___\uFFFD}" || q.Get("from") != "1700000000" || q.Get("until") != "1700000010" ||
			q.Get("format") != "pprof" || q.Get("sampleRate") != rate || q.Get("spyName") != "corescope" || r.Header.Get("Content-Encoding") != "" {
			t.Errorf("request %s %v", r.URL, r.Header)
		}
		if w := <-weights; w != 10 {
			t.Errorf("%d samples", w)
		}
	}
	if s := p.Stats(); s.Accepted != 4 || s.Lost != 0 || s.Failures != 1 {
		t.Errorf("%+v", s)
	}
}

func TestInvalidServer(t *testing.T) {
	if _, err := New("localhost:4040", nil, push.Options{}); err == nil {
		t.Error("an address without scheme was accepted")
	}
}
