// Package outbox passes on what other programs of the node have to say: heeler-health leaves each message as a file in
// a folder, and the agent publishes it and removes the file once the stream has it. So a prolog needs no bus.
//
// The folder is the store: while the bus is away files stay in it, up to bounds, above which the oldest go first and
// those that say that a job begins or ends go last. A file that is no good is set aside and counted.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/collector"
)

// Bus is how letters leave.
type Bus interface {
	// Connection is the number of the present connection, and whether it stands.
	Connection() (number uint64, up bool)
	// Deliver publishes messages and waits for the stream's word; an error for each that it doesn't have.
	Deliver(ctx context.Context, events []bus.Envelope) []error
}

// Options say what to pass on.
type Options struct {
	Path     string
	Self     Identity
	MaxFiles int
	MaxBytes int64
	// Owners are the users whose files are passed on; the agent's own are always.
	Owners []uint32
	// Grace is how long a file stays after the stream has it: the bus may say so before its disk has it.
	Grace time.Duration
	Log   *slog.Logger
}

// Source implements [collector.Source].
type Source struct {
	Options
	// Bus is set before Run; nil where there is none, and then the folder is only looked at.
	Bus    Bus
	counts struct {
		sent, bad, refused, dropped, waiting, waitingBytes atomic.Uint64
	}
	acked      map[string]time.Time // files that the stream has
	connection uint64               // that they were sent on
	sizes      map[string]int64     // of files; they don't change once they have their name
}

// New returns a source.
func New(o Options) *Source {
	o.Owners = append(slices.Clone(o.Owners), uint32(os.Geteuid()))
	return &Source{Options: o, acked: map[string]time.Time{}, sizes: map[string]int64{}}
}

const (
	batch = 32
	// Between batches of a backlog: with many nodes that come back at once the bus is not flooded.
	batchPause = 50 * time.Millisecond
	idleTime   = time.Second
	awayTime   = time.Second
	largest    = 4 << 20
	minGrace   = 50 * time.Millisecond
)

// Counts implements [collector.Counter].
func (s *Source) Counts() map[string]uint64 {
	c := &s.counts
	return map[string]uint64{
		"sent": c.sent.Load(), "bad": c.bad.Load(), "refused": c.refused.Load(), "dropped": c.dropped.Load(),
		"waiting": c.waiting.Load(), "waiting_bytes": c.waitingBytes.Load(),
	}
}

// Run implements [collector.Source].
func (s *Source) Run(ctx context.Context, beat func(), _ collector.Emit) error {
	f, err := openFolder(s.Path, s.Owners)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := newWatch(s.Path)
	defer w.close()
	for ctx.Err() == nil {
		pause, err := s.pass(ctx, f)
		if err != nil {
			return err
		}
		if !same(f, s.Path) {
			return errors.New("the folder is another one now")
		}
		beat()
		rest(ctx, w.came, pause)
	}
	return s.forget(f, time.Time{})
}

// same says that the folder still has its name: one that was made anew must be opened anew.
func same(f *folder, path string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(ours, now)
}

func rest(ctx context.Context, came <-chan struct{}, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-came:
	case <-timer.C:
	}
}

// pass sends a batch, and says how long to wait then.
func (s *Source) pass(ctx context.Context, f *folder) (time.Duration, error) {
	connected := false
	if s.Bus != nil {
		var now uint64
		if now, connected = s.Bus.Connection(); now != s.connection {
			clear(s.acked) // the bus may have lost what it took last; what it has it knows again by its id
			s.connection = now
		}
	}
	if connected {
		if err := s.forget(f, time.Now().Add(-max(s.Grace, minGrace))); err != nil {
			return 0, err
		}
	}
	names, err := s.waiting(f)
	if err != nil {
		return 0, err
	}
	if !connected {
		return awayTime, nil
	}
	if len(names) == 0 {
		return s.idle(), nil
	}
	undelivered, err := s.send(ctx, f, names[:min(batch, len(names))])
	switch {
	case err != nil:
		return 0, err
	case undelivered != nil && ctx.Err() == nil:
		if now, up := s.Bus.Connection(); up && now == s.connection {
			return 0, undelivered // the bus is there and doesn't take it: an operator has to hear of that
		}
		return awayTime, nil
	case len(names) > batch:
		return batchPause, nil
	}
	return s.idle(), nil
}

func (s *Source) idle() time.Duration {
	if len(s.acked) > 0 {
		return max(min(s.Grace, idleTime), minGrace)
	}
	return idleTime
}

// waiting names the letters that the stream doesn't have, after those for which there is no room are gone.
func (s *Source) waiting(f *folder) ([]string, error) {
	all, err := f.list()
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all, func(name string) bool {
		_, done := s.acked[name]
		return done
	})
	sizes := make(map[string]int64, len(names))
	var bytes int64
	for _, name := range names {
		size, known := s.sizes[name]
		if !known {
			size = f.size(name)
		}
		sizes[name] = size
		bytes += size
	}
	s.sizes = sizes
	// Urgent ones come first in the list, so what goes first are the oldest of those behind them.
	first := slices.IndexFunc(names, func(name string) bool { return !urgent(name) })
	order := names
	if first > 0 {
		order = slices.Concat(names[first:], names[:first])
	}
	dropped := 0
	for ; dropped < len(order) && (len(order)-dropped > s.MaxFiles || bytes > s.MaxBytes); dropped++ {
		if err := f.remove(order[dropped]); err != nil {
			return nil, err
		}
		bytes -= sizes[order[dropped]]
		delete(sizes, order[dropped])
	}
	if dropped > 0 {
		names = slices.DeleteFunc(names, func(name string) bool {
			_, there := sizes[name]
			return !there
		})
	}
	if dropped > 0 && s.counts.dropped.Add(uint64(dropped)) == uint64(dropped) {
		s.Log.Warn("no room for what waits; the oldest results go", "path", s.Path, "files", s.MaxFiles, "bytes", s.MaxBytes)
	}
	s.counts.waiting.Store(uint64(len(names)))
	s.counts.waitingBytes.Store(uint64(max(bytes, 0)))
	return names, nil
}

// send publishes some letters. It says why the bus doesn't take one now, and apart from that what is wrong here.
func (s *Source) send(ctx context.Context, f *folder, names []string) (undelivered, fault error) {
	var events []bus.Envelope
	var sent []string
	for _, name := range names {
		raw, err := f.read(name, largest)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil && !errors.Is(err, errForeign) && errors.Is(err, os.ErrPermission) {
			return nil, err // the agent may not read what it should pass on: an operator has to hear of it
		}
		var e bus.Envelope
		if err == nil {
			e, err = open(raw, s.Self)
		}
		if err != nil {
			if err := s.setAside(f, name, err); err != nil {
				return nil, err
			}
			continue
		}
		events, sent = append(events, e), append(sent, name)
	}
	if len(events) == 0 {
		return nil, nil
	}
	for i, err := range s.Bus.Deliver(ctx, events) {
		switch {
		case err == nil:
			s.acked[sent[i]] = time.Now()
			s.counts.sent.Add(1)
		case errors.Is(err, bus.ErrNever):
			if err := s.setAside(f, sent[i], err); err != nil {
				return nil, err
			}
		default:
			undelivered = err
		}
	}
	return undelivered, nil
}

func (s *Source) setAside(f *folder, name string, why error) error {
	if errors.Is(why, errForeign) {
		s.counts.refused.Add(1)
	} else {
		s.counts.bad.Add(1)
	}
	s.Log.Warn("a file is not passed on", "path", filepath.Join(s.Path, name), "error", why)
	return f.setAside(name)
}

// forget removes files that the stream has had since before then; zero for all.
func (s *Source) forget(f *folder, then time.Time) error {
	for name, at := range s.acked {
		if then.IsZero() || at.Before(then) {
			if err := f.remove(name); err != nil {
				return err
			}
			delete(s.acked, name)
		}
	}
	return nil
}
