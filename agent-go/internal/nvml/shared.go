package nvml

import (
	"sync"
	"time"
)

// Shared lets two users have one library open. The owner says when it is closed and opened anew, as after a reload of
// the driver; the guest leaves at once when asked, and never keeps it open against the owner's will.
type Shared struct {
	mu      sync.Mutex
	lib     Library
	users   int
	leaving chan struct{} // closed when the owner wants the guests gone
	gone    chan struct{} // closed when the last user has left
}

// Share returns the library for an owner and guests.
func Share(lib Library) *Shared { return &Shared{lib: lib} }

// leavingTime is how long the owner waits for the guests to leave before it opens the library again. One that hangs in
// a call never leaves.
const leavingTime = 2 * time.Second

// Owner is the library as its owner has it.
func (s *Shared) Owner() Library { return &owner{lease{Library: s.lib, s: s}} }

// Guest is the library for someone who comes and goes.
func (s *Shared) Guest() *Guest { return &Guest{lease{Library: s.lib, s: s}} }

type lease struct {
	Library
	s    *Shared
	held bool
}

type owner struct{ lease }

// Guest is a user of a library that is another's.
type Guest struct{ lease }

// Init implements [Library].
func (l *owner) Init() error {
	l.s.mu.Lock()
	gone := l.s.gone
	l.s.mu.Unlock()
	if gone != nil {
		select {
		case <-gone:
		case <-time.After(leavingTime):
			l.s.mu.Lock()
			l.s.gone, l.s.leaving = nil, make(chan struct{})
			l.s.mu.Unlock()
		}
	}
	return l.s.open(&l.lease)
}

// Shutdown implements [Library]. The guests are asked to leave; the last one out closes the library.
func (l *owner) Shutdown() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if !l.held {
		return
	}
	l.s.ask()
	l.s.leave(&l.lease)
	if l.s.users > 0 && l.s.gone == nil {
		l.s.gone = make(chan struct{})
	}
}

// Init implements [Library].
func (l *Guest) Init() error {
	l.s.mu.Lock()
	closing := l.s.gone != nil
	l.s.mu.Unlock()
	if closing {
		return &InitError{Status: Uninitialized, Detail: "the library is being closed"}
	}
	return l.s.open(&l.lease)
}

// Shutdown implements [Library].
func (l *Guest) Shutdown() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.held {
		l.s.leave(&l.lease)
	}
}

// Leave is closed when the guest must leave. It is that of the library as it is open now.
func (l *Guest) Leave() <-chan struct{} {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.leaving
}

// EventSet implements [EventLibrary].
func (l *Guest) EventSet() (EventSet, Status) {
	if events, ok := l.Library.(EventLibrary); ok {
		return events.EventSet()
	}
	return nil, FunctionNotFound
}

// Open tells whether somebody still has the library open: after its owner has closed it, a guest whose call hangs.
func (s *Shared) Open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users > 0
}

func (s *Shared) open(l *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.held {
		return nil
	}
	if s.users == 0 {
		if err := s.lib.Init(); err != nil {
			return err
		}
		s.leaving = make(chan struct{})
	}
	s.users++
	l.held = true
	return nil
}

func (s *Shared) ask() {
	select {
	case <-s.leaving:
	default:
		close(s.leaving)
	}
}

func (s *Shared) leave(l *lease) {
	l.held = false
	if s.users--; s.users > 0 {
		return
	}
	s.lib.Shutdown()
	if s.gone != nil {
		close(s.gone)
		s.gone = nil
	}
}
