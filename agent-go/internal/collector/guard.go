package collector

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBusy says that an earlier call of the same guard has not come back.
var ErrBusy = errors.New("an earlier call has not returned")

// ErrSlow says that the call did not come back in time. It goes on; the guard is busy until it returns.
var ErrSlow = errors.New("call did not return in time")

// Guard runs calls that may never return, such as those into a GPU driver, one at a time. A call that takes too long
// is left alone, and no other is started until it returns: at most one goroutine is stuck for each guard.
type Guard struct {
	mu      sync.Mutex
	since   time.Time     // of the running call
	late    bool          // the running call was given up
	free    chan struct{} // closed when the running call returns; nil when none runs
	nowFunc func() time.Time
}

func (g *Guard) now() time.Time {
	if g.nowFunc != nil {
		return g.nowFunc()
	}
	return time.Now()
}

// Stuck tells how long a call that was given up has been running, and whether there is one.
func (g *Guard) Stuck() (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.late {
		return 0, false
	}
	return g.now().Sub(g.since), true
}

// acquire takes the guard, or says why not.
func (g *Guard) acquire(wait time.Duration) error {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		g.mu.Lock()
		if g.free == nil {
			g.free, g.since, g.late = make(chan struct{}), g.now(), false
			g.mu.Unlock()
			return nil
		}
		free, late := g.free, g.late
		g.mu.Unlock()
		if late {
			return ErrBusy
		}
		select {
		case <-free:
		case <-deadline.C:
			return ErrBusy
		}
	}
}

func (g *Guard) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.free)
	g.free, g.late = nil, false
}

func (g *Guard) giveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = g.free != nil
}

// Guarded runs f under g and waits for it at most so long. f must not touch what the caller goes on to use: it may
// still run then.
func Guarded[T any](g *Guard, wait time.Duration, f func() T) (T, error) {
	var none T
	if err := g.acquire(wait); err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic: %v", r)
			}
			g.release()
			done <- o
		}()
		o.value = f()
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		g.giveUp()
		return none, ErrSlow
	}
}
