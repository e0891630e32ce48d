package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// pause is why a task stands still, and how to make it. Guarded by the task's lock.
type pause struct {
	why    string             // empty: it runs
	cancel context.CancelFunc // of the Source that is open; nil for none
	over   chan struct{}      // hears that a pause may be over
}

// SetPauses asks for each entry why it is to stand still, which an empty string denies, and makes it so. A reading that
// runs is not broken off: see [Runner.Settle].
func (r *Runner) SetPauses(why func(e *Entry) string) {
	for _, t := range r.tasks {
		t.setPause(why(&t.Entry))
	}
}

func (t *task) setPause(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause.why != "" && why == "" {
		t.state, t.why = heelerv1.CollectorUnknown, "not read since it was off"
	}
	t.pause.why = why
	if why != "" && t.pause.cancel != nil {
		t.pause.cancel()
	}
	select {
	case t.pause.over <- struct{}{}:
	default:
	}
}

const settlePoll = 5 * time.Millisecond

// Settle waits until no paused entry reads any more. The error names those that still do when ctx ends.
func (r *Runner) Settle(ctx context.Context) error {
	var errs []error
	for _, t := range r.tasks {
		for t.unsettled() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(settlePoll):
			}
		}
		if t.unsettled() {
			errs = append(errs, fmt.Errorf("%s: its reading does not end", t.Name))
		}
	}
	return errors.Join(errs...)
}

func (t *task) unsettled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pause.why != "" && (t.running || t.pause.cancel != nil)
}

// mayOpen waits while a Source is paused. It says no when ctx ends.
func (t *task) mayOpen(ctx context.Context) bool {
	for ctx.Err() == nil {
		t.mu.Lock()
		paused := t.pause.why != ""
		t.mu.Unlock()
		if !paused {
			return true
		}
		select {
		case <-ctx.Done():
		case <-t.pause.over:
		}
	}
	return false
}

// opened notes how to make the Source end. One that was paused in this moment ends at once.
func (t *task) opened(cancel context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause.cancel = cancel
	if t.pause.why != "" {
		cancel()
	}
}

// closed notes that the Source has ended.
func (t *task) closed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running, t.pause.cancel = false, nil
}
