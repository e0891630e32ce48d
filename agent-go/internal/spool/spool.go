// Package spool keeps events on disk until the bus has them for good.
//
// It is a queue of segments that are only appended to. Each record carries a checksum; after a crash, reading stops at
// the first record that is torn, which can only be the last one written. A record goes when it was acknowledged and a
// grace time has passed, since the bus may acknowledge before its own disk has it. The spool is bounded: when it is
// full, the oldest segment goes, and what was lost with it is counted.
package spool

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options bound the spool.
type Options struct {
	MaxBytes     int64
	SegmentBytes int64
	// Grace is how long a record stays after it was acknowledged.
	Grace time.Duration
}

// Entry is a record with its number.
type Entry struct {
	Index uint64
	Data  []byte
}

// Stats say what is in the spool.
type Stats struct {
	Waiting uint64 // records that the bus has not acknowledged
	Bytes   uint64
	Dropped uint64 // records lost since the spool was opened
}

// Spool is a queue on disk. Its methods may be called from several goroutines.
type Spool struct {
	opt Options
	dir string

	mu       sync.Mutex
	segments []*segment
	out      *os.File   // the newest segment
	full     []*os.File // segments that are written, but not yet synced
	dirty    bool
	next     uint64 // index of the next record
	sent     uint64 // records below were handed out since the last Rewind
	acked    map[uint64]time.Time
	floor    uint64 // records below are done with
	dropped  uint64
	waiting  uint64
	more     chan struct{}
	in       *os.File // for reading
	inFirst  uint64
}

// segment is one file.
type segment struct {
	first   uint64
	offsets []uint32 // where each record begins
	size    int64
	path    string
}

func (s *segment) end() uint64 { return s.first + uint64(len(s.offsets)) }

const (
	headerBytes  = 8 // length, checksum
	largest      = 1 << 20
	suffix       = ".seg"
	floorFile    = "floor"
	permissions  = 0o600
	defaultMax   = 32 << 20
	defaultSegm  = 1 << 20
	defaultGrace = 3 * time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Open opens the spool in dir, which it makes. Records that an earlier process left are handed out again.
func Open(dir string, opt Options) (*Spool, error) {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = defaultMax
	}
	if opt.SegmentBytes == 0 {
		opt.SegmentBytes = min(defaultSegm, opt.MaxBytes/4)
	}
	if opt.Grace == 0 {
		opt.Grace = defaultGrace
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{opt: opt, dir: dir, acked: map[uint64]time.Time{}, more: make(chan struct{}, 1)}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return s, nil
}

// load reads the segments that are there.
func (s *Spool) load() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		first, err := strconv.ParseUint(name, 16, 64)
		if !ok || err != nil {
			continue
		}
		seg, err := scan(filepath.Join(s.dir, e.Name()), first)
		if err != nil {
			return err
		}
		s.segments = append(s.segments, seg)
	}
	slices.SortFunc(s.segments, func(a, b *segment) int { return int(int64(a.first) - int64(b.first)) })
	if n := len(s.segments); n > 0 {
		s.next = s.segments[n-1].end()
	}
	s.floor = s.readFloor()
	s.next = max(s.next, s.floor)
	s.collect()
	s.sent = s.low()
	s.waiting = s.next - s.sent
	return nil
}

// scan finds the whole records of a segment and cuts off a torn one.
func scan(path string, first uint64) (*segment, error) {
	f, err := os.OpenFile(path, os.O_RDWR, permissions)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	seg := &segment{first: first, path: path}
	r := bufio.NewReader(f)
	for {
		data, err := readRecord(r)
		if err != nil {
			break // the end, or a record that was being written when the machine stopped
		}
		seg.offsets = append(seg.offsets, uint32(seg.size))
		seg.size += int64(headerBytes + len(data))
	}
	return seg, f.Truncate(seg.size)
}

func readRecord(r io.Reader) ([]byte, error) {
	var head [headerBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n == 0 || n > largest {
		return nil, errors.New("bad length")
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	if crc32.Checksum(data, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("bad checksum")
	}
	return data, nil
}

func (s *Spool) readFloor() uint64 {
	data, err := os.ReadFile(filepath.Join(s.dir, floorFile))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// low is the first record that is still there and not done with.
func (s *Spool) low() uint64 {
	if len(s.segments) == 0 {
		return s.next
	}
	return max(s.floor, s.segments[0].first)
}

// Append adds a record. When it returns, the record survives the end of the process; Sync makes it survive the end of
// the machine.
func (s *Spool) Append(data []byte) error {
	if len(data) == 0 || len(data) > largest {
		return fmt.Errorf("spool: record of %d bytes", len(data))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(int64(len(data) + headerBytes)); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	record := make([]byte, headerBytes, headerBytes+len(data))
	binary.LittleEndian.PutUint32(record, uint32(len(data)))
	binary.LittleEndian.PutUint32(record[4:], crc32.Checksum(data, castagnoli))
	seg := s.segments[len(s.segments)-1]
	if _, err := s.out.Write(append(record, data...)); err != nil {
		// What was written of it is cut off, or the next record would stand behind rubbish.
		return errors.Join(fmt.Errorf("spool: %w", err), s.out.Truncate(seg.size))
	}
	seg.offsets = append(seg.offsets, uint32(seg.size))
	seg.size += int64(headerBytes + len(data))
	s.next++
	s.waiting++
	s.dirty = true
	s.wake()
	return nil
}

func (s *Spool) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// makeRoom opens a segment with room for size bytes, at the cost of the oldest where the spool is full.
func (s *Spool) makeRoom(size int64) error {
	if s.out != nil {
		if newest := s.segments[len(s.segments)-1]; newest.size+size <= s.opt.SegmentBytes {
			return nil
		}
		s.full = append(s.full, s.out)
		s.out = nil
	}
	for s.bytes()+size > s.opt.MaxBytes && len(s.segments) > 0 {
		s.dropOldest()
	}
	path := filepath.Join(s.dir, fmt.Sprintf("%016x%s", s.next, suffix))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, permissions)
	if err != nil {
		return err
	}
	s.out = f
	s.segments = slices.DeleteFunc(s.segments, func(g *segment) bool { return g.path == path })
	s.segments = append(s.segments, &segment{first: s.next, path: path})
	return nil
}

func (s *Spool) bytes() int64 {
	var n int64
	for _, seg := range s.segments {
		n += seg.size
	}
	return n
}

func (s *Spool) dropOldest() {
	seg := s.segments[0]
	for i := max(seg.first, s.floor); i < seg.end(); i++ {
		if _, ok := s.acked[i]; !ok {
			s.dropped++
			s.waiting--
		}
	}
	s.remove(seg)
	s.floor = max(s.floor, seg.end())
	s.sent = max(s.sent, s.floor)
}

func (s *Spool) remove(seg *segment) {
	for i := seg.first; i < seg.end(); i++ {
		delete(s.acked, i)
	}
	if s.in != nil && s.inFirst == seg.first {
		_ = s.in.Close()
		s.in = nil
	}
	_ = os.Remove(seg.path)
	s.segments = s.segments[1:]
}

// More is signalled when there may be something to hand out.
func (s *Spool) More() <-chan struct{} { return s.more }

// Next hands out up to n records that were not handed out yet.
func (s *Spool) Next(n int) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Entry
	for s.sent < s.next && len(out) < n {
		if _, done := s.acked[s.sent]; !done {
			data, err := s.read(s.sent)
			if err != nil {
				return out, fmt.Errorf("spool: record %d: %w", s.sent, err)
			}
			out = append(out, Entry{s.sent, data})
		}
		s.sent++
	}
	return out, nil
}

func (s *Spool) read(index uint64) ([]byte, error) {
	i := slices.IndexFunc(s.segments, func(g *segment) bool { return index >= g.first && index < g.end() })
	if i < 0 {
		return nil, fs.ErrNotExist
	}
	seg := s.segments[i]
	if s.in == nil || s.inFirst != seg.first {
		if s.in != nil {
			_ = s.in.Close()
		}
		f, err := os.Open(seg.path)
		if err != nil {
			s.in = nil
			return nil, err
		}
		s.in, s.inFirst = f, seg.first
	}
	at := int64(seg.offsets[index-seg.first])
	return readRecord(io.NewSectionReader(s.in, at, seg.size-at))
}

// Ack says that the bus has a record.
func (s *Spool) Ack(index uint64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.acked[index]; again || index < s.low() || index >= s.next {
		return
	}
	s.acked[index] = at
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
		s.wake()
	}
}

// Limit changes the bounds. What is too much goes with the next record.
func (s *Spool) Limit(o Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.MaxBytes, s.opt.Grace = o.MaxBytes, o.Grace
}

// Tidy removes what was acknowledged longer than the grace time ago. It must not be called while the bus is away.
func (s *Spool) Tidy(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	floor := s.low()
	for floor < s.next {
		at, ok := s.acked[floor]
		if !ok || now.Sub(at) < s.opt.Grace {
			break
		}
		floor++
	}
	if floor == s.low() {
		return nil
	}
	for i := s.floor; i < floor; i++ {
		delete(s.acked, i)
	}
	s.floor = floor
	s.collect()
	return s.writeFloor()
}

// collect removes the segments that are wholly done with.
func (s *Spool) collect() {
	for len(s.segments) > 0 && s.segments[0].end() <= s.floor {
		if len(s.segments) == 1 && s.out != nil {
			_ = s.out.Close()
			s.out = nil
		}
		s.remove(s.segments[0])
	}
}

func (s *Spool) writeFloor() error {
	path := filepath.Join(s.dir, floorFile)
	temporary := path + ".new"
	if err := os.WriteFile(temporary, strconv.AppendUint(nil, s.floor, 10), permissions); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return os.Rename(temporary, path)
}

// Sync brings all records to the disk. That may take seconds on a busy one; appending and sending go on meanwhile.
func (s *Spool) Sync() error {
	s.mu.Lock()
	out, full := s.out, s.full
	if !s.dirty {
		out = nil
	}
	s.full, s.dirty = nil, false
	s.mu.Unlock()
	var errs []error
	for _, f := range full {
		errs = append(errs, f.Sync(), f.Close())
	}
	if out != nil {
		if err := out.Sync(); !errors.Is(err, os.ErrClosed) { // closed meanwhile: its records are done with
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Stats say what is in the spool.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Waiting: s.waiting, Bytes: uint64(max(s.bytes(), 0)), Dropped: s.dropped}
}

// Close syncs and closes.
func (s *Spool) Close() error {
	err := s.Sync()
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{err}
	if s.out != nil {
		errs = append(errs, s.out.Close())
	}
	if s.in != nil {
		errs = append(errs, s.in.Close())
	}
	s.out, s.in = nil, nil
	return errors.Join(errs...)
}
