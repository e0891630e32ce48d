package bus

import (
	"slices"
	"sync"
	"time"
)

// Sample is a message that may be dropped.
type Sample struct {
	Subject string
	Type    string
	Data    []byte
	// Due is when it should go out, by the monotonic clock: the wall clock may be set meanwhile.
	Due time.Time

	number uint64 // in the order of Put
	order  uint64 // in the order of Take
}

// freshTime is how old a sample is at most that does not count as backlog.
const freshTime = 5 * time.Second

// Ring holds samples while the bus is away. It is bounded in number and bytes; the oldest go first, and are counted.
// Those that were sent are kept until the bus is known to have them.
type Ring struct {
	most      int
	mostBytes int

	mu      sync.Mutex
	queue   []Sample
	sent    []Sample
	bytes   int // of both
	number  uint64
	taken   uint64
	dropped uint64
	more    chan struct{}
}

// NewRing returns a ring for at most so many samples and bytes.
func NewRing(most, mostBytes int) *Ring {
	return &Ring{most: most, mostBytes: mostBytes, more: make(chan struct{}, 1)}
}

// Put adds a sample.
func (r *Ring) Put(s Sample) {
	if s.Due.IsZero() {
		s.Due = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	s.number = r.number
	r.queue = append(r.queue, s)
	r.bytes += len(s.Data)
	for len(r.sent) > 0 && r.over() {
		r.sent = r.without(r.sent, 0) // most likely the bus has it
	}
	for len(r.queue) > 1 && r.over() {
		r.queue = r.without(r.queue, 0)
		r.dropped++
	}
	r.wake()
}

func (r *Ring) wake() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// Limit changes how many samples it holds. What is too much goes with the next Put.
func (r *Ring) Limit(most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = most
}

func (r *Ring) over() bool { return len(r.queue)+len(r.sent) > r.most || r.bytes > r.mostBytes }

func (r *Ring) without(from []Sample, i int) []Sample {
	r.bytes -= len(from[i].Data)
	return slices.Delete(from, i, i+1)
}

// Next returns the sample to send next: the oldest of the fresh ones, so that what is true now is not held up by what
// was, or else, if the backlog may go on, the oldest of all. Without one it says how long to wait.
func (r *Ring) Next(now time.Time, backlog bool) (s Sample, wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = time.Minute
	fresh := len(r.queue)
	for fresh > 0 && now.Sub(r.queue[fresh-1].Due) < freshTime {
		fresh--
	}
	for _, s := range r.queue[fresh:] {
		early := s.Due.Sub(now)
		if early <= 0 {
			return s, 0, true
		}
		wait = min(wait, early)
	}
	if fresh > 0 && backlog {
		return r.queue[0], 0, true
	}
	return Sample{}, wait, false
}

// Take removes a sample that was sent, and keeps it until it is confirmed.
func (r *Ring) Take(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(s); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.taken++
		s.order = r.taken
		r.sent = append(r.sent, s)
	}
}

// find finds a sample, unless it was dropped meanwhile.
func (r *Ring) find(s Sample) int {
	return slices.IndexFunc(r.queue, func(q Sample) bool { return q.number == s.number })
}

// Refuse counts a sample that can never be sent.
func (r *Ring) Refuse(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(s); i >= 0 {
		r.queue = r.without(r.queue, i)
		r.dropped++
	}
}

// Mark stands for all that was sent so far, and tells whether any of it is not confirmed.
func (r *Ring) Mark() (mark uint64, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken, len(r.sent) > 0
}

// Confirm says that the bus has what was sent up to a mark.
func (r *Ring) Confirm(mark uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.sent) > 0 && r.sent[0].order <= mark {
		r.sent = r.without(r.sent, 0)
	}
}

// Restore puts back what was sent and may be lost: the connection broke. What the bus had after all comes twice, with
// the same number of its own.
func (r *Ring) Restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.sent, r.queue...)
	r.sent = nil
	slices.SortStableFunc(r.queue, func(a, b Sample) int { return int(int64(a.number) - int64(b.number)) })
	r.wake()
}

// Dropped is how many were lost.
func (r *Ring) Dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Len is how many wait.
func (r *Ring) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}
