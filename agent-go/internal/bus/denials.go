package bus

import (
	"errors"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	denialHold  = time.Minute     // before a subject that was refused is tried again
	denialReply = 5 * time.Second // within which the server would have refused it again
)

// denials knows the subjects that the server refuses to take from this user. Each is told of once, and tried with one
// message a minute.
type denials struct {
	log *slog.Logger

	mu    sync.Mutex
	held  map[string]*denial
	said  map[string]bool
	total uint64
}

type denial struct {
	until  time.Time
	probed bool
}

func newDenials(log *slog.Logger) *denials {
	return &denials{log: log, held: map[string]*denial{}, said: map[string]bool{}}
}

var deniedPublish = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

// heard takes an error of the connection that says that a subject was refused.
func (d *denials) heard(err error) bool {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	found := deniedPublish.FindStringSubmatch(err.Error())
	if found == nil {
		return false
	}
	subject := found[1]
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total++
	d.held[subject] = &denial{until: time.Now().Add(denialHold)}
	if !d.said[subject] {
		d.said[subject] = true
		d.log.Error("the bus refuses a subject; this user may not publish to it", "subject", subject)
	}
	return true
}

// allow tells whether a message may be sent to a subject now.
func (d *denials) allow(subject string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	held, ok := d.held[subject]
	if !ok {
		return true
	}
	switch {
	case now.Before(held.until):
		return false
	case held.probed: // and it was not refused again
		delete(d.held, subject)
	default:
		held.probed, held.until = true, now.Add(denialReply)
	}
	return true
}

// forget lets all be tried again: a new connection may have other rights.
func (d *denials) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.held)
}

// count is how often something was refused, and what is held back now.
func (d *denials) count() (total uint64, held []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for subject := range d.held {
		held = append(held, subject)
	}
	return d.total, held
}
