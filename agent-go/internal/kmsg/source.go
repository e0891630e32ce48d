package kmsg

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

// GPUs is what the source asks about the node's GPUs.
type GPUs interface {
	// ByPCI is the UUID of the GPU at an address, or empty.
	ByPCI(address string) string
	// Recheck reads that GPU at once.
	Recheck(address string, wait time.Duration) heelerv1.GpuState
}

// Witnesses is what the source asks about the other reporter of XIDs.
type Witnesses interface {
	// Line takes an XID of the log, and Watched tells whether NVML may have something to say to it.
	Line(f witness.Fault, at, now time.Time) *witness.Line
	Watched(address string) bool
	SetLog(state witness.Log)
}

// Options say what to read.
type Options struct {
	// Path is /dev/kmsg, or a file that grows, in the same form.
	Path string
	// AnyFacility takes records that the kernel did not write, as not trusted.
	AnyFacility bool
	// FloodInterval is how often equal lines are summed up.
	FloodInterval time.Duration
	// StatePath is where the position is kept; empty for nowhere.
	StatePath string
	Boot      string
	GPUs      GPUs      // nil for none
	Witnesses Witnesses // nil for none
	// Durable tells whether all events emitted so far would survive the end of the process; until then the position
	// is not kept, so that their records are read again. Nil for always.
	Durable func() bool
	// Ready is closed when the GPUs are known; the start waits for it a little, since old lines need their UUIDs.
	Ready <-chan struct{}
	Log   *slog.Logger
}

// Source implements [collector.Source].
type Source struct {
	Options
	counts struct {
		records, unreadable, untrusted, matched, gaps, summed, orphans, suppressed atomic.Uint64
	}
}

// New returns a source.
func New(o Options) *Source { return &Source{Options: o} }

const (
	foldTime  = 20 * time.Millisecond
	idleTime  = time.Second
	saveTime  = time.Second
	readyTime = 5 * time.Second
)

// run is one opening of the log.
type run struct {
	*Source
	reader  reader
	parser  *Parser
	folder  folder
	gate    *gate
	parked  []*parked
	checks  map[string]*reading
	emit    collector.Emit
	store   store
	state   saved
	seen    position // of the last record
	live    bool     // the backlog is read
	overrun bool     // the ring overwrote records since the last one read
	savedAt time.Time
	unsaved bool // the position could not be kept
}

// Run implements [collector.Source].
func (s *Source) Run(ctx context.Context, beat func(), emit collector.Emit) error {
	s.waitForGPUs(ctx)
	st := store{s.StatePath, s.Boot, s.Path}
	state, err := st.load()
	if err != nil {
		s.Log.Warn("position in the kernel log is unreadable; reading from the start", "error", err)
	}
	rd, err := open(s.Path, state.Position)
	if err != nil {
		s.logIs(witness.Gone)
		return err
	}
	defer rd.close()
	s.logIs(witness.Opening)
	r := &run{
		Source: s, reader: rd, parser: NewParser(), folder: folder{hold: foldTime}, gate: newGate(s.FloodInterval),
		checks: map[string]*reading{}, emit: emit, store: st, state: state, seen: state.Position,
	}
	err = r.loop(ctx, beat)
	s.logIs(witness.Opening)
	return err
}

func (s *Source) logIs(state witness.Log) {
	if s.Witnesses != nil {
		s.Witnesses.SetLog(state)
	}
}

func (s *Source) waitForGPUs(ctx context.Context) {
	if s.Ready == nil {
		return
	}
	select {
	case <-s.Ready:
	case <-ctx.Done():
	case <-time.After(readyTime):
	}
}

func (r *run) loop(ctx context.Context, beat func()) error {
	for ctx.Err() == nil {
		beat()
		it, err := r.reader.next(r.wait())
		if !r.live && (errors.Is(err, errIdle) || r.reader.caughtUp()) {
			r.live = true
			r.logIs(witness.Live)
		}
		switch {
		case err == nil:
			err = r.record(it)
		case errors.Is(err, errIdle):
			err = nil
		case errors.Is(err, errOverrun):
			r.overrun, err = true, nil
		}
		if err == nil {
			err = r.timers(time.Now())
		}
		if err != nil {
			return err
		}
	}
	return r.finish()
}

// wait is how long to wait for a record: short while an event is held for its next line, or for what the GPU says.
func (r *run) wait() time.Duration {
	switch {
	case len(r.parked) > 0:
		return r.parkedFor(time.Now())
	case len(r.folder.held) > 0 || !r.live:
		return foldTime
	}
	return idleTime
}

// timers lets go what was held long enough, and keeps the position.
func (r *run) timers(now time.Time) error {
	if err := r.pass(r.folder.due(now)); err != nil {
		return err
	}
	if err := r.unpark(now); err != nil {
		return err
	}
	if err := r.sendAll(r.gate.due(now)); err != nil {
		return err
	}
	if now.Sub(r.savedAt) >= saveTime {
		r.savedAt = now
		r.save()
	}
	return nil
}

func (r *run) finish() error {
	err := errors.Join(r.pass(r.folder.flush()), r.unparkAll(), r.sendAll(r.gate.flush()))
	if err == nil {
		r.save()
	}
	return err
}

// save keeps the position behind all that was emitted, and before all that is still held or only counted.
func (r *run) save() {
	safe := r.seen
	if oldest, ok := r.gate.oldest(); ok && oldest.Ordinal < safe.Ordinal {
		safe = oldest
	}
	for _, e := range r.folder.held {
		if e.before.Ordinal < safe.Ordinal {
			safe = e.before
		}
	}
	for _, p := range r.parked {
		if p.event.before.Ordinal < safe.Ordinal {
			safe = p.event.before
		}
	}
	if safe == r.state.Position || r.Durable != nil && !r.Durable() {
		return
	}
	state := r.state
	state.Position = safe
	// A position that cannot be kept stops nothing: the next run reads some records twice, and their events have the
	// same ids again.
	err := r.store.save(state)
	if err == nil {
		r.state = state
	}
	if (err != nil) != r.unsaved {
		r.unsaved = err != nil
		r.Log.Warn("the position in the kernel log", "kept", err == nil, "error", err)
	}
}

// record takes one record of the log.
func (r *run) record(it item) error {
	r.counts.records.Add(1)
	rec, err := ParseRecord(it.data)
	if err != nil {
		r.counts.unreadable.Add(1)
		r.seen = it.after
		return nil
	}
	if r.seenBefore(it) {
		return nil
	}
	if err := r.gap(rec, it); err != nil {
		return err
	}
	r.seen = it.after
	if !rec.Kernel() && !r.AnyFacility {
		r.counts.untrusted.Add(1)
		return nil
	}
	for _, fact := range r.parser.record(&rec) {
		r.counts.matched.Add(1)
		e := &event{
			fact: fact, rec: rec, ordinal: it.after.Ordinal, before: it.before, at: time.Now(),
			live: r.live, trusted: rec.Kernel(), count: max(1, fact.Count),
		}
		e.shrink()
		r.learn(e)
		if err := r.pass(r.folder.add(e)); err != nil {
			return err
		}
	}
	return nil
}

// seenBefore tells whether the ring gives a record that an earlier run of the agent has dealt with.
func (r *run) seenBefore(it item) bool {
	return it.after.Inode == 0 && r.seen != (position{}) && it.after.Ordinal <= r.seen.Ordinal
}

// gap reports records that were overwritten before they were read, by this run or while no agent ran.
func (r *run) gap(rec Record, it item) error {
	overrun := r.overrun
	r.overrun = false
	ofRing := it.after.Inode == 0
	if !ofRing || r.seen == (position{}) || rec.Seq <= r.seen.Ordinal+1 {
		return nil
	}
	first, last := r.seen.Ordinal+1, rec.Seq-1
	e := &event{
		fact: Fact{Kind: heelerv1.KindGap}, ordinal: first, before: it.before, at: time.Now(), trusted: true,
		rec: Record{Seq: first, MonoUS: rec.MonoUS}, live: overrun && r.live, count: 1,
	}
	e.fact.set("first", first)
	e.fact.set("last", last)
	e.fact.set("lost", last-first+1)
	r.counts.gaps.Add(1)
	return r.send(e)
}

// pass sends events on, unless they are part of a flood. Those that others may have a word on wait for it.
func (r *run) pass(events []*event) error {
	for _, e := range events {
		if e.fact.Kind == heelerv1.KindFlood {
			r.counts.suppressed.Add(e.count)
		}
		r.expect(e)
		if !r.gate.admit(e) {
			r.counts.summed.Add(e.count)
			continue
		}
		if r.park(e) {
			continue
		}
		if err := r.send(e); err != nil {
			return err
		}
	}
	r.counts.orphans.Store(r.folder.orphans)
	return nil
}

func (r *run) sendAll(events []*event) error {
	for _, e := range events {
		if err := r.send(e); err != nil {
			return err
		}
	}
	return nil
}

// learn keeps which GPU the driver says stands at an address: it says so once, before the first XID.
func (r *run) learn(e *event) {
	if e.fact.Kind == heelerv1.KindGpuUUID && e.trusted && e.fact.PCI != "" {
		r.state.UUIDs[e.fact.PCI] = e.fact.UUID
	}
}

func (r *run) uuid(f *Fact) string {
	if f.UUID != "" || f.PCI == "" {
		return f.UUID
	}
	if r.GPUs != nil {
		if uuid := r.GPUs.ByPCI(f.PCI); uuid != "" {
			return uuid
		}
	}
	return r.state.UUIDs[f.PCI]
}

func (r *run) send(e *event) error {
	m := Message(&e.fact, &e.rec)
	m.Seq = e.ordinal
	m.UUID = r.uuid(&e.fact)
	m.Count = heelerv1.Some(e.count)
	m.Trusted = heelerv1.Some(e.trusted)
	m.TS, m.ApproximateTS = timeOf(e)
	m.GpuState = e.state
	if e.line != nil && e.line.Seen() || e.state == heelerv1.GpuLost || e.state == heelerv1.GpuHung {
		m.Witness = append(m.Witness, "nvml")
	}
	return r.emit(m)
}

// Message makes the event of a fact, without what only the agent knows.
func Message(f *Fact, rec *Record) *heelerv1.KernelEvent {
	return &heelerv1.KernelEvent{
		Kind: f.Kind, Code: f.Code, PCI: f.PCI, UUID: f.UUID, GI: f.GI, CI: f.CI, PID: f.PID, Comm: f.Comm,
		Text: cut(f.Text), Detail: f.Detail, KmsgSeq: heelerv1.Some(rec.Seq), TSMonoUS: heelerv1.Some(rec.MonoUS),
		Witness: []string{"kmsg"}, Raw: cut(clean(rec.Raw)),
	}
}

// Counts implements [collector.Counter].
func (s *Source) Counts() map[string]uint64 {
	return map[string]uint64{
		"records": s.counts.records.Load(), "unreadable": s.counts.unreadable.Load(),
		"untrusted": s.counts.untrusted.Load(), "matched": s.counts.matched.Load(), "gaps": s.counts.gaps.Load(),
		"summed": s.counts.summed.Load(), "orphans": s.counts.orphans.Load(),
		"suppressed": s.counts.suppressed.Load(),
	}
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
