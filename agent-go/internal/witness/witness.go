// Package witness brings two reports of one fault together: the driver's line in the kernel log and the event that NVML
// has of it. It does no reading and no sending, and it keeps no more than it must.
//
// The rules. A line is never held back for long: it says that NVML saw the fault too if NVML came first, or within a few
// milliseconds. An event of NVML waits for its line, and is then part of it. If the line went out before, the event is
// taken as the same fault and only counted. If no line comes, the event is a fault of its own, seen by NVML alone. Lines
// and events pair one to one: two equal lines and one event are two faults, and so are two events and one line.
package witness

import (
	"sync"
	"time"
)

// Fault is what two reports of the same have in common.
type Fault struct {
	PCI  string
	Code uint64
}

// Log is how the kernel log is doing.
type Log int

// The states of the log.
const (
	// Opening is the log until its backlog is read: a line may still come late.
	Opening Log = iota
	// Live is the log that is read as it is written.
	Live
	// Gone is the log that cannot be read: no line will come.
	Gone
)

const (
	// Hold is how long an event waits for its line.
	Hold = 2 * time.Second
	// LongHold is the same while the log is being opened.
	LongHold = 10 * time.Second
	// Window is how long a line waits for its event.
	Window = 5 * time.Second
	// mostLines is how many lines of one fault wait, mostFaults of how many faults, mostHeld how many events.
	mostLines, mostFaults, mostHeld = 256, 256, 1024
)

// Book keeps the reports that have not found their other half.
type Book[T any] struct {
	mu      sync.Mutex
	log     Log
	watched map[string]bool
	lines   map[Fault][]*Line
	tidied  time.Time
	held    []held[T]
	// together counts events that became part of their line, late those whose line was out already.
	together, late uint64
}

type held[T any] struct {
	fault Fault
	at    time.Time
	event T
}

// Line is a line that waits for its event.
type Line struct {
	mu   *sync.Mutex
	at   time.Time
	seen bool
	sent bool
}

// New returns an empty book.
func New[T any]() *Book[T] { return &Book[T]{lines: map[Fault][]*Line{}, watched: map[string]bool{}} }

// SetLog says how the kernel log is doing.
func (b *Book[T]) SetLog(state Log) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = state
}

// Watch says of which GPUs NVML tells events, by their PCI addresses.
func (b *Book[T]) Watch(addresses []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched = map[string]bool{}
	for _, a := range addresses {
		b.watched[a] = true
	}
}

// Watched tells whether it is worth a moment to wait for NVML.
func (b *Book[T]) Watched(address string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watched[address]
}

// Line takes a line of the kernel log that was written at that time. The oldest event that waits for such a line is
// part of it then.
func (b *Book[T]) Line(f Fault, at, now time.Time) *Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &Line{mu: &b.mu, at: at}
	for i := range b.held {
		if b.held[i].fault == f {
			b.held = append(b.held[:i], b.held[i+1:]...)
			b.together++
			l.seen = true
			return l
		}
	}
	if len(b.watched) > 0 && now.Sub(at) < Window {
		b.keep(f, l, now)
	}
	return l
}

func (b *Book[T]) keep(f Fault, l *Line, now time.Time) {
	lines := b.lines[f]
	for len(lines) > 0 && (now.Sub(lines[0].at) >= Window || len(lines) >= mostLines) {
		lines = lines[1:]
	}
	if len(lines) == 0 && len(b.lines) >= mostFaults {
		b.tidy(now)
	}
	if len(b.lines) < mostFaults {
		b.lines[f] = append(lines, l)
	}
}

// tidy forgets lines whose time is over.
func (b *Book[T]) tidy(now time.Time) {
	if now.Sub(b.tidied) < time.Second {
		return
	}
	b.tidied = now
	for f, lines := range b.lines {
		if len(lines) == 0 || now.Sub(lines[len(lines)-1].at) >= Window {
			delete(b.lines, f)
		}
	}
}

// Seen tells whether NVML saw it too. From then on it is too late to say so.
func (l *Line) Seen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = true
	return l.seen
}

// Peek is Seen without the farewell.
func (l *Line) Peek() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// Event takes an event of NVML. It is part of the oldest line that waits for one, or it waits.
func (b *Book[T]) Event(f Fault, now time.Time, event T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := b.lines[f]
	for len(lines) > 0 && now.Sub(lines[0].at) >= Window {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		delete(b.lines, f)
		b.held = append(b.held, held[T]{f, now, event})
		return
	}
	lines[0].seen = true
	if lines[0].sent {
		b.late++
	} else {
		b.together++
	}
	if b.lines[f] = lines[1:]; len(lines) == 1 {
		delete(b.lines, f)
	}
}

// Due returns the events whose line did not come.
func (b *Book[T]) Due(now time.Time) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold := Hold
	switch b.log {
	case Opening:
		hold = LongHold
	case Gone:
		hold = 0
	}
	var out []T
	for len(b.held) > 0 && (now.Sub(b.held[0].at) >= hold || len(b.held) > mostHeld) {
		out = append(out, b.held[0].event)
		b.held = b.held[1:]
	}
	return out
}

// Waiting is how many events wait.
func (b *Book[T]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

// Counts tells how many events became part of their line, and how many were told by a line that was out already.
func (b *Book[T]) Counts() (together, late uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.together, b.late
}
