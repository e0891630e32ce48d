// Package nvmlevents hears of GPU faults through NVML's events: the second witness of XIDs beside the kernel log, and
// the only one where that cannot be read. Other events, such as a page that was retired, become events of their own.
//
// It keeps one set of events open, which costs a thread that waits, and no rights beyond those of reading GPUs. Each call
// may hang for ever, so all are made under one guard. Where the library, the driver or the GPUs have no events it says
// absent. An XID waits in the book of witnesses for its line in the kernel log; see package witness.
package nvmlevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/flood"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

// Library is what the source needs of NVML: it is a guest there.
type Library interface {
	nvml.Library
	nvml.EventLibrary
	Leave() <-chan struct{}
}

// Book is where XIDs wait for their line.
type Book = witness.Book[*heelerv1.KernelEvent]

// Options say what to hear, and whom to tell.
type Options struct {
	Library Library
	Book    *Book
	// FloodInterval is how often equal events are summed up.
	FloodInterval time.Duration
	Log           *slog.Logger
}

// Source implements [collector.Source].
type Source struct {
	Options
	guard  collector.Guard
	gate   *flood.Gate[*heelerv1.KernelEvent, struct{}]
	unsent []*heelerv1.KernelEvent
	seq    uint64
	counts struct{ heard, alone, summed, unsent, rebuilt, watched atomic.Uint64 }
}

// New returns a source.
func New(o Options) *Source {
	return &Source{Options: o, gate: flood.New[*heelerv1.KernelEvent, struct{}](o.FloodInterval)}
}

// Reconfigure takes another interval. It must not be called while Run runs.
func (s *Source) Reconfigure(floodInterval time.Duration) { s.gate.SetInterval(floodInterval) }

const (
	openTime = 10 * time.Second // without persistence mode the driver wakes the GPUs first
	// waitTime is how long one call waits for an event, and answerTime how much longer it may take before it hangs.
	waitTime   = time.Second
	answerTime = 3 * time.Second
	// againTime is how often it is tried to hear of GPUs that could not be asked; a GPU that was lost ends the waiting,
	// and is left out for shortPause at first.
	againTime             = 30 * time.Second
	shortPause, longPause = time.Second, 10 * time.Second
	mostUnsent            = 64
)

var (
	// errLost says that a GPU went away, so that the set of events is of no use any more.
	errLost = errors.New("a GPU was lost")
	// errAgain says that it is time to ask GPUs again that could not be asked.
	errAgain = errors.New("GPUs are asked again")
)

// session is one set of events.
type session struct {
	set    nvml.EventSet
	leave  <-chan struct{}
	uuids  map[string]string // by PCI address
	xids   []string          // the addresses of those that tell of XIDs
	silent int               // GPUs that could not be asked
}

// Run implements [collector.Source].
func (s *Source) Run(ctx context.Context, beat func(), emit collector.Emit) error {
	pause := shortPause
	for {
		opened := time.Now()
		err := s.hear(ctx, beat, emit)
		if errors.Is(err, errAgain) {
			continue
		}
		if !errors.Is(err, errLost) {
			return err
		}
		s.counts.rebuilt.Add(1)
		if time.Since(opened) > againTime {
			pause = shortPause
		}
		if err := s.rest(ctx, beat, emit, pause); err != nil {
			return err
		}
		pause = min(2*pause, longPause)
	}
}

// rest waits, and tells what is due.
func (s *Source) rest(ctx context.Context, beat func(), emit collector.Emit, pause time.Duration) error {
	for end := time.Now().Add(pause); time.Now().Before(end); {
		beat()
		if err := s.due(time.Now(), emit); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(waitTime, pause)):
		}
	}
	return nil
}

// hear keeps one session open until something ends it.
func (s *Source) hear(ctx context.Context, beat func(), emit collector.Emit) error {
	if ctx.Err() != nil {
		return nil
	}
	type opening struct {
		session *session
		err     error
	}
	o, late := collector.Guarded(&s.guard, openTime, func() opening {
		session, err := s.open()
		return opening{session, err}
	})
	if late != nil {
		return fmt.Errorf("%w: opening the events: %w", collector.ErrHung, late)
	}
	if o.err != nil {
		return o.err
	}
	s.Book.Watch(o.session.xids)
	s.counts.watched.Store(uint64(len(o.session.uuids)))
	err := s.listen(ctx, beat, emit, o.session)
	s.Book.Watch(nil)
	s.counts.watched.Store(0)
	s.close(o.session)
	if ctx.Err() != nil {
		err = errors.Join(err, s.flush(emit))
	}
	return err
}

// open asks all GPUs for their events.
func (s *Source) open() (*session, error) {
	if err := s.Library.Init(); err != nil {
		var why *nvml.InitError
		if errors.As(err, &why) && why.Absent() {
			err = fmt.Errorf("%w: %w", collector.ErrAbsent, err)
		}
		return nil, err
	}
	set, status := s.Library.EventSet()
	if status != nvml.OK {
		s.Library.Shutdown()
		return nil, absent("the driver has no events", status)
	}
	got := &session{set: set, leave: s.Library.Leave(), uuids: map[string]string{}}
	why := s.register(got)
	if len(got.uuids) == 0 {
		set.Close()
		s.Library.Shutdown()
		return nil, why
	}
	return got, nil
}

func absent(what string, status nvml.Status) error {
	if status == nvml.FunctionNotFound || status == nvml.NotSupported {
		return fmt.Errorf("%w: %s", collector.ErrAbsent, what)
	}
	return fmt.Errorf("%s: %s", what, status)
}

// register returns why no GPU could be asked, where none could.
func (s *Source) register(got *session) error {
	count, status := s.Library.Count()
	if status != nvml.OK {
		return fmt.Errorf("counting the GPUs: %s", status)
	}
	why := fmt.Errorf("%w: the driver shows no GPU", collector.ErrAbsent)
	for i := range count {
		dev, status := s.Library.Device(i)
		if status != nvml.OK {
			got.silent++
			why = fmt.Errorf("GPU %d: %s", i, status)
			continue
		}
		address, status := dev.PCI()
		address, ok := pci.Normalise(address)
		if status != nvml.OK || !ok {
			got.silent++
			why = fmt.Errorf("GPU %d has no address: %s", i, status)
			continue
		}
		kinds, status := got.set.Register(dev, nvml.EventKinds, address)
		if status != nvml.OK {
			if status != nvml.NotSupported {
				got.silent++
			}
			why = absent("GPU "+address+" has no events", status)
			continue
		}
		got.uuids[address], _ = dev.UUID()
		if kinds&nvml.EventXid != 0 {
			got.xids = append(got.xids, address)
		}
	}
	return why
}

// close gives set and library up, unless a call hangs there.
func (s *Source) close(got *session) {
	if _, stuck := s.guard.Stuck(); stuck {
		return
	}
	_, _ = collector.Guarded(&s.guard, openTime, func() bool {
		got.set.Close()
		s.Library.Shutdown()
		return true
	})
}

// listen waits for events, one at a time.
func (s *Source) listen(ctx context.Context, beat func(), emit collector.Emit, got *session) error {
	type answer struct {
		event  nvml.Event
		status nvml.Status
	}
	opened := time.Now()
	for ctx.Err() == nil {
		beat()
		a, late := collector.Guarded(&s.guard, waitTime+answerTime, func() answer {
			event, status := got.set.Wait(waitTime)
			return answer{event, status}
		})
		now := time.Now()
		if late != nil {
			return errors.Join(fmt.Errorf("%w: waiting for events: %w", collector.ErrHung, late), s.due(now, emit))
		}
		switch a.status {
		case nvml.OK:
			s.take(&a.event, got, now)
		case nvml.Timeout:
		case nvml.Lost:
			return errors.Join(errLost, s.due(now, emit))
		default:
			return errors.Join(fmt.Errorf("waiting for events: %s", a.status), s.due(now, emit))
		}
		if err := s.due(now, emit); err != nil {
			return err
		}
		select {
		case <-got.leave:
			return errors.New("the library is opened again")
		default:
		}
		if got.silent > 0 && now.Sub(opened) > againTime {
			return errAgain
		}
	}
	return nil
}
