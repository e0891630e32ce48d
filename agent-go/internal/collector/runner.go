package collector

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// Runner runs the entries of a table, each on its own, and knows how each is doing.
type Runner struct {
	emit  Emit
	log   *slog.Logger
	node  string
	tasks []*task
}

// task is an entry with its record.
type task struct {
	Entry
	mu        sync.Mutex
	state     heelerv1.CollectorState
	why       string
	success   time.Time
	duration  time.Duration
	readings  uint64
	failures  uint64
	skipped   uint64
	running   bool
	runningAt time.Time
	pause     pause
	turned    atomic.Int64 // when its loop last came round, unix nanoseconds
}

// NewRunner returns a runner for the entries. The node's name spreads the ticks of a fleet.
func NewRunner(entries []Entry, node string, emit Emit, log *slog.Logger) *Runner {
	r := &Runner{emit: emit, log: log, node: node}
	for _, e := range entries {
		t := &task{Entry: e, state: heelerv1.CollectorUnknown, why: "not read yet"}
		t.pause.over = make(chan struct{}, 1)
		if e.Off {
			t.state, t.why = heelerv1.CollectorOff, "switched off"
		}
		r.tasks = append(r.tasks, t)
	}
	return r
}

// Run runs all entries until ctx ends. It does not wait for a reading that hangs.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, t := range r.tasks {
		if t.Off {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if t.Source != nil {
				r.stayOpen(ctx, t)
			} else {
				r.tick(ctx, t)
			}
		}()
	}
	wg.Wait()
}

// phase is this node's own offset into the period of an entry.
func (r *Runner) phase(t *task) time.Duration {
	if t.Align {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.node + "\x00" + t.Name))
	return time.Duration(h.Sum64() % uint64(t.Every))
}

// nextTick is the first multiple of every, plus the phase, after now.
func nextTick(now time.Time, every, phase time.Duration) time.Time {
	n := now.Add(-phase).UnixNano()
	return time.Unix(0, n-n%int64(every)).Add(every + phase)
}

func (r *Runner) tick(ctx context.Context, t *task) {
	phase := r.phase(t)
	next := nextTick(time.Now(), t.Every, phase)
	if !t.Align && t.begin() {
		go r.read(ctx, t, time.Now()) // the first at once: others wait for what it finds
	}
	for {
		t.turned.Store(time.Now().UnixNano())
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if t.begin() {
			go r.read(ctx, t, next)
		}
		next = nextTick(time.Now().Add(time.Millisecond), t.Every, phase)
	}
}

// begin marks the start of a reading; it says no while the entry is paused, and, counting, while the last one still
// runs.
func (t *task) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause.why != "" {
		return false
	}
	if t.running {
		t.skipped++
		return false
	}
	t.running, t.runningAt = true, time.Now()
	return true
}

func (r *Runner) read(ctx context.Context, t *task, at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, t.deadline())
	defer cancel()
	start := time.Now()
	err := safely(func() error { return t.Collector.Collect(ctx, at, r.emit) })
	if changed := t.end(err, time.Since(start)); changed {
		r.say(t, err)
	}
}

// safely turns a panic into an error, so that one collector cannot take the agent down.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// end records a reading and tells whether the state changed.
func (t *task) end(err error, took time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.state
	t.running, t.duration = false, took
	t.readings++
	t.state, t.why = Judge(err)
	switch t.state {
	case heelerv1.CollectorOK:
		t.success = time.Now()
	case heelerv1.CollectorAbsent:
	default:
		t.failures++
	}
	return before != t.state
}

// Judge says what the error of a reading means for the state of its collector.
func Judge(err error) (heelerv1.CollectorState, string) {
	switch {
	case err == nil:
		return heelerv1.CollectorOK, ""
	case errors.Is(err, ErrAbsent):
		return heelerv1.CollectorAbsent, err.Error()
	case errors.Is(err, ErrHung):
		return heelerv1.CollectorHung, err.Error()
	default:
		return heelerv1.CollectorFailing, err.Error()
	}
}

func (r *Runner) say(t *task, err error) {
	if err != nil {
		state, _ := Judge(err)
		r.log.Warn("collector is not well", "collector", t.Name, "state", string(state), "error", err)
		return
	}
	r.log.Info("collector is well", "collector", t.Name)
}

const (
	shortestPause = time.Second
	longestPause  = 30 * time.Second
	absentPause   = 2 * time.Second // what is absent may appear, and looking is cheap
)

func (r *Runner) stayOpen(ctx context.Context, t *task) {
	pause := shortestPause
	for t.mayOpen(ctx) {
		opened := time.Now()
		opening, cancel := context.WithCancel(ctx)
		t.opened(cancel)
		err := safely(func() error { return t.Source.Run(opening, t.beat, r.emit) })
		t.closed()
		broken := opening.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return
		}
		if broken { // it was told to end
			pause = shortestPause
			continue
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		if t.end(err, time.Since(opened)) {
			r.say(t, err)
		}
		if time.Since(opened) > longestPause {
			pause = shortestPause
		}
		if errors.Is(err, ErrAbsent) {
			pause = absentPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

func (t *task) beat() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.why, t.success = heelerv1.CollectorOK, "", time.Now()
	t.running, t.runningAt = true, t.success
}

// overdue is how late a loop may be beyond its period before it is called stuck.
const overdue = 30 * time.Second

// Stuck names an entry whose loop no longer comes round, which is a fault of the agent itself: a reading that hangs
// does not hold its loop up.
func (r *Runner) Stuck(now time.Time) (string, bool) {
	for _, t := range r.tasks {
		last := t.turned.Load()
		if t.Collector != nil && last != 0 && now.Sub(time.Unix(0, last)) > t.Every+overdue {
			return t.Name, true
		}
	}
	return "", false
}

// Status is how each entry is doing now.
func (r *Runner) Status() map[string]heelerv1.CollectorStatus {
	all := make(map[string]heelerv1.CollectorStatus, len(r.tasks))
	for _, t := range r.tasks {
		all[t.Name] = t.status(time.Now())
	}
	return all
}

func (t *task) status(now time.Time) heelerv1.CollectorStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := heelerv1.CollectorStatus{State: t.state, Why: t.why}
	if t.Off {
		return s
	}
	if t.pause.why != "" {
		s.State, s.Why = heelerv1.CollectorOff, t.pause.why
	} else if late := now.Sub(t.runningAt); t.running && late > t.deadline() {
		s.State, s.Why = heelerv1.CollectorHung, fmt.Sprintf("reading since %s", late.Round(time.Second))
	}
	if !t.success.IsZero() {
		s.LastSuccessTS = heelerv1.Some(t.success.UnixNano())
	}
	if t.readings > 0 {
		s.DurationNS = heelerv1.Some(uint64(t.duration))
	}
	s.Readings = heelerv1.Some(t.readings)
	s.Failures = heelerv1.Some(t.failures)
	s.Skipped = heelerv1.Some(t.skipped)
	s.Counts = t.counts()
	return s
}

func (t *task) counts() map[string]uint64 {
	var of any = t.Collector
	if t.Source != nil {
		of = t.Source
	}
	if c, ok := of.(Counter); ok {
		return c.Counts()
	}
	return nil
}
