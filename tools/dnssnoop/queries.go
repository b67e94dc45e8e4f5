package dnssnoop

import "github.com/corescope/corescope/internal/value"

// maxQueries is the number of queries that are kept without an answer. When there are more, the oldest
// are shown as unanswered.
const maxQueries = 1 << 16

// queries are the queries that wait for an answer.
type queries struct {
	open  map[question]query
	order []query // all of open in the order of their time, and some that were answered
	again []query // sent again without an answer
}

// question identifies a query.
type question struct {
	sock uint64
	id   uint16
}

type query struct {
	event
	protocol string
	message
}

func (q *query) question() question { return question{q.Sock, q.ID} }

func (a *queries) add(q query) {
	if old, ok := a.open[q.question()]; ok {
		a.again = append(a.again, old)
	}
	a.open[q.question()] = q
	a.order = append(a.order, q)
}

// answer matches an answer with its query. Its row has the task and the ends of the query, and the
// time of the answer.
func (a *queries) answer(m query) answered {
	q, ok := a.take(m.Sock, m.ID)
	if !ok {
		return answered{query: m}
	}
	at := m.Time
	latency := value.Span{Nanoseconds: value.Nanoseconds(max(at, q.Time+1) - q.Time)}
	m.event, m.Time = q.event, at
	return answered{m, latency}
}

// take removes the query with this ID on a socket.
func (a *queries) take(sock uint64, id uint16) (query, bool) {
	q, ok := a.open[question{sock, id}]
	delete(a.open, question{sock, id})
	return q, ok
}

// next removes a query that is to be shown as unanswered at this time, or any one if the run ends.
func (a *queries) next(now value.Time, end bool) (query, bool) {
	if len(a.again) > 0 {
		q := a.again[0]
		a.again = a.again[1:]
		return q, true
	}
	for len(a.order) > 0 {
		q := a.order[0]
		current, ok := a.open[q.question()]
		isOpen := ok && current.Time == q.Time
		if isOpen && !end && now < q.Time+unansweredAfter && len(a.open) <= maxQueries {
			return q, false
		}
		a.order = a.order[1:]
		if isOpen {
			delete(a.open, q.question())
			return q, true
		}
	}
	return query{}, false
}
