package prove

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Proofs of tools for functions of the C library.
func cProofs() []proof {
	return []proof{
		{tool: "memleak", job: "allocations", n: 200, does: "malloc, calloc, and malloc with free", args: "--pid {child} --older 0 60", by: "pid function", own: "pid function"},
		{tool: "gethostlatency", job: "lookups", n: 100, does: "getaddrinfo of an address, and of a name that is none", args: "--pid {child} --columns all"},
		{tool: "sslsniff", job: "tls", n: 200, does: "SSL_write and SSL_read of 100 bytes and more on a connection of its own", args: "--pid {child} --columns all"},
		{tool: "threadsnoop", job: "threads", n: 100, does: "pthread_create", args: "--pid {child} --columns all"},
	}
}

func cJobs() map[string]job {
	return map[string]job{
		"allocations": cJob(cWork{calls: repeated(allocationCalls), rows: allocationRows}),
		"lookups":     cJob(cWork{calls: repeated(lookupCalls), rows: lookupRows}),
		"threads":     cJob(cWork{calls: repeated(threadCalls), rows: threadRows}),
		"tls":         cJob(cWork{libraries: []string{"libssl.so.3"}, calls: tlsCalls, prints: tlsResult, rows: tlsRows}),
	}
}

// repeated returns a function that returns the calls for each of n repetitions.
func repeated(calls func(i int) []cCall) func(n int) []cCall {
	return func(n int) (all []cCall) {
		for i := range n {
			all = append(all, calls(i)...)
		}
		return all
	}
}

// cWork is what a C program does.
type cWork struct {
	libraries []string // besides the C library
	calls     func(n int) []cCall
	prints    int // bytes that the calls write to the standard output
	// rows notes what the tool must show of the calls, which wrote the output.
	rows func(w *worker, c *cProcess, s span) error
}

// cJob returns a job of a C program.
func cJob(of cWork) job {
	var c *cProcess
	return job{
		prepare: func(w *worker) (err error) {
			c, err = w.startC(of.libraries, of.calls(w.n))
			return err
		},
		run: func(w *worker) error {
			s, err := c.run(of.prints)
			if err != nil {
				return fmt.Errorf("run the C program: %w", err)
			}
			return of.rows(w, c, s)
		},
	}
}

const (
	smallest = 100 // bytes
	elements = 3
	element  = 50 // bytes
)

func allocationCalls(i int) []cCall {
	return []cCall{
		{"malloc", []any{smallest + i}},
		{"calloc", []any{elements, element}},
		{"malloc", []any{element, cResult{1, 0}}},
		{"free", nil},
	}
}

func allocationRows(w *worker, c *cProcess, _ span) error {
	w.sum(row{"pid": c.pid, "function": "malloc", "count": w.n, "bytes": w.n*smallest + w.n*(w.n-1)/2})
	w.sum(row{"pid": c.pid, "function": "calloc", "count": w.n, "bytes": w.n * elements * element})
	return nil
}

const (
	lookedUp    = "127.0.0.9"
	notLookedUp = "name.invalid"
)

// lookupCalls returns calls that ask no server: the second one accepts addresses only.
func lookupCalls(int) []cCall {
	const numeric = 4 // AI_NUMERICHOST
	hints := append(cBytes{numeric}, make([]byte, cEntrySize)...)
	return []cCall{
		{"getaddrinfo", []any{cText(lookedUp), 0, 0, cBytes(make([]byte, 8))}},
		{"getaddrinfo", []any{cText(notLookedUp), 0, hints, cBytes(make([]byte, 8))}},
	}
}

func lookupRows(w *worker, c *cProcess, s span) error {
	const shortest = 50 // ns: two programs run, and names are compared
	for range w.n {
		both := func() row {
			return row{"pid": c.pid, "tid": c.pid, "comm": c.comm, "time": s, "function": "getaddrinfo", "delta_ns": between(shortest, s.ns())}
		}
		w.want(both().with(row{"host": lookedUp, "found": true, "ret": 0, "addr": lookedUp, "addrs": atLeast(1)}))
		w.want(both().with(row{"host": notLookedUp, "found": false, "ret": -2, "error": "EAI_NONAME", "addrs": 0}))
	}
	return nil
}

func threadCalls(int) []cCall {
	return []cCall{
		{"pthread_create", []any{cSlot{1, 0}, 0, cRoutine{}, 0}},
		{"pthread_join", []any{0, 0}},
	}
}

func threadRows(w *worker, c *cProcess, s span) error {
	address := fmt.Sprintf("%#x", c.routine)
	for range w.n {
		w.want(row{"pid": c.pid, "tid": c.pid, "comm": c.comm, "time": s, "routine": address})
	}
	return nil
}

// What a TLS connection transfers: the first bytes of tlsData.
const (
	tlsSmallest = 100
	tlsLengths  = 50
)

// tlsData returns the first n bytes of the data.
func tlsData(n int) string {
	return strings.Repeat("the quick brown fox jumps over the lazy dog ", 1+n/44)[:n]
}

// tlsLength returns the length of a message.
func tlsLength(i int) int { return tlsSmallest + i%tlsLengths }

// tlsShortest is less than the time of any call, in ns: it encrypts or decrypts, and writes a record.
const tlsShortest = 200

// Variables of the program.
const (
	tlsContext cVar = iota
	tlsClient
	tlsServer
	tlsRequests // what the client writes
	tlsAnswers  // what the server writes
	tlsWritten  // result of the last SSL_write
)

// tlsCalls returns calls that connect two ends in memory, without a certificate, and transfer data. The program
// writes the result of the last SSL_write to its output: the connection may not be permitted here.
func tlsCalls(n int) []cCall {
	const (
		maxVersion = 124 // SSL_CTRL_SET_MAX_PROTO_VERSION
		tls12      = 0x0303
		steps      = 4 // of each end of the handshake
	)
	all := []cCall{
		{"TLS_method", []any{cStore(tlsContext)}},
		{"SSL_CTX_new", []any{tlsContext, cStore(tlsContext)}},
		{"SSL_CTX_ctrl", []any{tlsContext, maxVersion, tls12, 0}},
		{"SSL_CTX_set_cipher_list", []any{tlsContext, cText("AECDH-AES256-SHA:@SECLEVEL=0")}},
		{"BIO_s_mem", []any{cStore(tlsRequests)}},
		{"BIO_new", []any{tlsRequests, cStore(tlsRequests)}},
		{"BIO_s_mem", []any{cStore(tlsAnswers)}},
		{"BIO_new", []any{tlsAnswers, cStore(tlsAnswers)}},
	}
	for _, end := range []struct {
		ssl, reads, writes cVar
		state              string
	}{
		{tlsClient, tlsAnswers, tlsRequests, "SSL_set_connect_state"},
		{tlsServer, tlsRequests, tlsAnswers, "SSL_set_accept_state"},
	} {
		all = append(all,
			cCall{"SSL_new", []any{tlsContext, cStore(end.ssl)}},
			cCall{"SSL_set_bio", []any{end.ssl, end.reads, end.writes}},
			cCall{"BIO_up_ref", []any{end.reads}},
			cCall{"BIO_up_ref", []any{end.writes}},
			cCall{end.state, []any{end.ssl}},
		)
	}
	for range steps {
		all = append(all, cCall{"SSL_do_handshake", []any{tlsClient}}, cCall{"SSL_do_handshake", []any{tlsServer}})
	}
	data, space := cText(tlsData(tlsSmallest+tlsLengths)), cBytes(make([]byte, tlsSmallest+tlsLengths))
	for i := range n {
		all = append(all,
			cCall{"SSL_write", []any{tlsClient, data, tlsLength(i), cStore(tlsWritten)}},
			cCall{"SSL_read", []any{tlsServer, space, len(space)}},
		)
	}
	return append(all, cCall{"write", []any{1, cAddress(tlsWritten), tlsResult}})
}

// tlsResult is the size of an int.
const tlsResult = 4

func tlsRows(w *worker, c *cProcess, s span) error {
	if got, want := int32(binary.LittleEndian.Uint32(c.output)), int32(tlsLength(w.n-1)); got != want {
		return notHereError{fmt.Errorf("OpenSSL does not connect without a certificate here: SSL_write returned %d, want %d", got, want)}
	}
	for i := range w.n {
		n := tlsLength(i)
		for _, call := range []string{"write", "read"} {
			w.want(row{
				"pid": c.pid, "tid": c.pid, "comm": c.comm, "time": s, "library": "openssl", "call": call, "len": n, "ret": n,
				"truncated": false, "data": tlsData(n), "delta_ns": between(tlsShortest, s.ns()),
			})
		}
	}
	return nil
}
