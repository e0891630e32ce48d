package bus

import (
	"sync"
	"time"
)

// Sample is a message that may be dropped.
type Sample struct {
	Subject string
	Type    string
	Data    []byte
	// Due is when it should go out.
	Due time.Time
}

// Ring holds samples while the bus is away. It is bounded in number and bytes; the oldest go first, and are counted.
type Ring struct {
	most      int
	mostBytes int

	mu      sync.Mutex
	queue   []Sample
	bytes   int
	dropped uint64
	more    chan struct{}
}

// NewRing returns a ring for at most so many samples and bytes.
func NewRing(most, mostBytes int) *Ring {
	return &Ring{most: most, mostBytes: mostBytes, more: make(chan struct{}, 1)}
}

// Put adds a sample.
func (r *Ring) Put(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, s)
	r.bytes += len(s.Data)
	for len(r.queue) > 1 && (len(r.queue) > r.most || r.bytes > r.mostBytes) {
		r.bytes -= len(r.queue[0].Data)
		r.queue[0] = Sample{}
		r.queue = r.queue[1:]
		r.dropped++
	}
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

// Peek returns the oldest sample.
func (r *Ring) Peek() (Sample, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return Sample{}, false
	}
	return r.queue[0], true
}

// Take removes a sample that was peeked at, unless it was dropped meanwhile.
func (r *Ring) Take(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 && &r.queue[0].Data[0] == &s.Data[0] {
		r.bytes -= len(s.Data)
		r.queue[0] = Sample{}
		r.queue = r.queue[1:]
	}
}

// Refuse counts a sample that can never be sent.
func (r *Ring) Refuse(s Sample) {
	r.Take(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped++
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
