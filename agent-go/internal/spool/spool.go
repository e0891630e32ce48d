// Package spool keeps events on disk until the bus has them for good.
//
// It is a queue of segments that are only appended to. Each record carries a checksum and its number: what a crash or
// the disk damaged is passed over and counted, and the rest is still sent. A record goes when it was acknowledged and a
// grace time has passed, since the bus may acknowledge before its own disk has it. The spool is bounded: when it is
// full, the oldest segment goes, and a record takes its place that tells how many were lost.
//
// A disk that takes nothing (full, read-only, no rights) does not stop events: some are kept in memory, sent from
// there, and written once the disk takes them. Durable says whether all of them would survive the process.
package spool

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options bound the spool.
type Options struct {
	MaxBytes     int64
	SegmentBytes int64
	// MemoryBytes bounds what is kept while the disk takes nothing.
	MemoryBytes int64
	// Grace is how long a record stays after it was acknowledged.
	Grace time.Duration
	// Retry is the time between tries of a disk that takes nothing.
	Retry time.Duration
	// Tell makes the record that stands for others which were lost: a number of them that could not be read, and those
	// dropped for want of room. It also says how many were dropped, not counting those that only told of others. Nil
	// for no such record.
	Tell func(unread uint64, dropped [][]byte) (record []byte, lost uint64)
	Log  *slog.Logger
}

// Entry is a record that was handed out.
type Entry struct {
	Index uint64
	Data  []byte
	of    *segment
}

// Stats say what is in the spool.
type Stats struct {
	Waiting uint64 // records that the bus has not acknowledged
	Bytes   uint64
	Memory  uint64 // records that are not on disk
	Dropped uint64 // records lost for want of room since the spool was opened
	Damaged uint64 // records that could not be read
	Foreign uint64 // files that are no segments, left alone
	Trouble string // why the disk takes nothing, or empty
}

// Spool is a queue on disk. Its methods may be called from several goroutines.
type Spool struct {
	opt Options
	dir string

	mu       sync.Mutex
	attached bool // the folder is ours and was read
	lock     *os.File
	segments []*segment
	out      *os.File   // the newest segment
	full     []*os.File // segments that are written, but not yet synced
	dirty    bool
	foreign  []foreignFile
	inMemory int64
	next     uint64 // index of the next record
	sent     uint64 // records below were handed out since the last Rewind
	acked    map[uint64]time.Time
	floor    uint64 // records below are done with
	dropped  uint64
	damaged  uint64
	untold   uint64 // of the damaged
	waiting  uint64
	more     chan struct{}
	written  chan struct{}
	in       *os.File // for reading
	inFirst  uint64
	troubles map[string]string // by what was tried
	retryAt  time.Time
}

// foreignFile is one that could not be read as a segment. It is left for a person to look at, until room is needed.
type foreignFile struct {
	path string
	size int64
}

const (
	defaultMax    = 32 << 20
	defaultSegm   = 1 << 20
	defaultMemory = 1 << 20
	defaultGrace  = 3 * time.Second
	defaultRetry  = 2 * time.Second
)

// Open opens the spool in dir, which it makes. Records that an earlier process left are handed out again. A folder that
// cannot be used is tried again later; until then records are kept in memory.
func Open(dir string, opt Options) *Spool {
	orElse := func(v *int64, other int64) {
		if *v == 0 {
			*v = other
		}
	}
	orElse(&opt.MaxBytes, defaultMax)
	orElse(&opt.SegmentBytes, min(defaultSegm, opt.MaxBytes/4))
	orElse(&opt.MemoryBytes, defaultMemory)
	orElse((*int64)(&opt.Grace), int64(defaultGrace))
	orElse((*int64)(&opt.Retry), int64(defaultRetry))
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Spool{
		opt: opt, dir: dir, acked: map[uint64]time.Time{}, more: make(chan struct{}, 1), written: make(chan struct{}, 1), troubles: map[string]string{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attach()
	return s
}

// low is the first record that is still there and not done with.
func (s *Spool) low() uint64 {
	if len(s.segments) == 0 {
		return s.next
	}
	return max(s.floor, s.segments[0].first)
}

// segmentOf finds the segment of a record, or where the next one after a hole begins.
func (s *Spool) segmentOf(index uint64) (seg *segment, next uint64) {
	for _, g := range s.segments {
		if index < g.first {
			return nil, g.first
		}
		if index < g.end() {
			return g, index
		}
	}
	return nil, s.next
}

// Append adds a record. When it returns and the disk takes records, the record survives the end of the process; Sync
// makes it survive the end of the machine. An error means that neither the disk nor the memory has room.
func (s *Spool) Append(data []byte) error {
	if len(data) == 0 || len(data) > largest {
		return fmt.Errorf("spool: record of %d bytes", len(data))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell()
	return s.append(data)
}

// append adds a record to the disk, or else to the memory. While the disk takes nothing it is asked only now and then.
func (s *Spool) append(data []byte) error {
	err := s.ready()
	if err == nil {
		err = s.write(record{index: s.next, data: data})
	}
	if err != nil && !s.toMemory(data) {
		return fmt.Errorf("spool: %w", err)
	}
	s.next++
	s.waiting++
	wake(s.more)
	return nil
}

func (s *Spool) toMemory(data []byte) bool {
	size := int64(len(data) + recordHeader)
	if s.inMemory+size > s.opt.MemoryBytes {
		return false
	}
	n := len(s.segments)
	if n == 0 || s.segments[n-1].path != "" || s.segments[n-1].standIn {
		s.segments = append(s.segments, &segment{first: s.next})
		n++
	}
	seg := s.segments[n-1]
	seg.memory = append(seg.memory, slices.Clone(data))
	seg.offsets = append(seg.offsets, uint32(fileHeader))
	seg.size += size
	s.inMemory += size
	return true
}

func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// Written is signalled when something was written that is not synced yet.
func (s *Spool) Written() <-chan struct{} { return s.written }

// More is signalled when there may be something to hand out.
func (s *Spool) More() <-chan struct{} { return s.more }

// Next hands out up to n records that were not handed out yet.
func (s *Spool) Next(n int) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Entry
	for s.sent < s.next && len(out) < n {
		seg, at := s.segmentOf(s.sent)
		if seg == nil {
			s.sent = at
			continue
		}
		if _, done := s.acked[s.sent]; !done && seg.has(s.sent) {
			if data, err := s.read(seg, s.sent); err == nil {
				out = append(out, Entry{s.sent, data, seg})
			} else {
				s.lose(seg, s.sent, err)
			}
		}
		s.sent++
	}
	return out
}

// lose counts a record that was there and can no longer be read.
func (s *Spool) lose(seg *segment, index uint64, err error) {
	seg.lose(index)
	s.waiting--
	s.damaged++
	s.untold++
	_ = s.note("read", fmt.Errorf("%s: %w", filepath.Base(seg.path), err))
}

// tell adds the record that tells of those that could not be read.
func (s *Spool) tell() {
	if s.untold == 0 || s.opt.Tell == nil {
		return
	}
	data, _ := s.opt.Tell(s.untold, nil)
	if s.append(data) == nil {
		s.untold = 0
	}
}

// Ack says that the bus has a record.
func (s *Spool) Ack(e Entry, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg, _ := s.segmentOf(e.Index)
	// A record that was dropped while it was on its way has another in its place now.
	if _, again := s.acked[e.Index]; again || seg == nil || seg != e.of || e.Index < s.low() || !seg.has(e.Index) {
		return
	}
	s.acked[e.Index] = at
	s.waiting--
}

// Rewind hands out again what is not done with, acknowledged or not: after the bus was away, it may have lost what it
// had acknowledged just before.
func (s *Spool) Rewind(forgetAcks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if forgetAcks {
		s.waiting += uint64(len(s.acked))
		clear(s.acked)
	}
	s.sent = s.low()
	if s.sent < s.next {
		wake(s.more)
	}
}

// Limit changes the bounds. What is too much goes with the next record.
func (s *Spool) Limit(o Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.MaxBytes, s.opt.Grace = o.MaxBytes, o.Grace
}

// Tidy removes what was acknowledged longer than the grace time ago. It must not be called while the bus is away.
func (s *Spool) Tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	floor := s.low()
	for floor < s.next {
		seg, next := s.segmentOf(floor)
		if seg == nil {
			floor = next
			continue
		}
		if at, ok := s.acked[floor]; seg.has(floor) && (!ok || now.Sub(at) < s.opt.Grace) {
			break
		}
		floor++
	}
	if floor == s.low() {
		return
	}
	for i := range s.acked {
		if i < floor {
			delete(s.acked, i)
		}
	}
	s.floor = floor
	s.collect()
	s.writeFloor()
}

// Durable tells whether all records would survive the end of the process.
func (s *Spool) Durable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inMemory == 0
}

// Stats say what is in the spool.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Waiting: s.waiting, Bytes: uint64(max(s.bytes(), 0)), Dropped: s.dropped, Damaged: s.damaged,
		Foreign: uint64(len(s.foreign)), Trouble: s.trouble(),
	}
	for _, g := range s.segments {
		if g.path == "" {
			st.Memory += g.records(s.floor)
		}
	}
	return st
}
