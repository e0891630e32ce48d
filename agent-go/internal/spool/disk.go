package spool

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	suffix      = ".seg"
	asideSuffix = ".unread" // a file that is no segment of this version
	tempSuffix  = ".new"
	floorFile   = "floor"
	lockFile    = "lock"
	permissions = 0o600
	dirMode     = 0o750
	probeBytes  = 4096
)

var (
	errInUse = errors.New("another process uses this folder")
	errAway  = errors.New("the folder could not be used; it is tried again")
)

// note remembers how a try went, and says it once.
func (s *Spool) note(what string, err error) error {
	before, was := s.troubles[what]
	switch {
	case err == nil && was:
		delete(s.troubles, what)
		s.opt.Log.Info("the spool's disk is well again", "was", before)
	case err != nil && !was:
		s.opt.Log.Error("the spool's disk is not well; trying on", "what", what, "error", err)
	}
	if err != nil {
		s.troubles[what] = fmt.Sprintf("%s: %v", what, err)
	}
	return err
}

func (s *Spool) trouble() string {
	var all []string
	for _, text := range s.troubles {
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func (s *Spool) bytes() int64 {
	var n int64
	for _, seg := range s.segments {
		n += seg.size
	}
	for _, f := range s.foreign {
		n += f.size
	}
	return n
}

// ready brings what is in memory to the disk.
func (s *Spool) ready() error {
	if s.retryAt.IsZero() {
		return nil
	}
	if time.Now().Before(s.retryAt) {
		return s.away()
	}
	s.retryAt = time.Time{}
	if !s.attached {
		if s.attach(); !s.attached {
			return s.away()
		}
	}
	for _, seg := range s.segments {
		if seg.path == "" {
			if err := s.toFile(seg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Spool) away() error {
	if why := s.trouble(); why != "" {
		return errors.New(why)
	}
	return errAway
}

// toFile writes a segment that is in memory to a file of its own.
func (s *Spool) toFile(seg *segment) error {
	data := newFile()
	offsets := make([]uint32, len(seg.memory))
	for j, m := range seg.memory {
		offsets[j] = uint32(len(data))
		data = appendRecord(data, record{index: seg.first + uint64(j), data: m, standIn: seg.standIn})
	}
	path, err := s.replace(seg.first, data)
	if err != nil {
		return s.failed(err)
	}
	_ = s.note("write", nil)
	s.inMemory -= seg.memorySize()
	seg.path, seg.offsets, seg.memory, seg.size = path, offsets, nil, int64(len(data))
	return nil
}

func (s *segment) memorySize() (n int64) {
	for _, m := range s.memory {
		n += int64(len(m) + recordHeader)
	}
	return n
}

// replace writes a whole segment file so that it is there wholly or not at all.
func (s *Spool) replace(first uint64, data []byte) (string, error) {
	path := s.pathOf(first)
	temporary := path + tempSuffix
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, permissions)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(temporary)
		return "", err
	}
	s.full = append(s.full, f)
	return path, nil
}

func (s *Spool) pathOf(first uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%016x%s", first, suffix))
}

// failed notes that the disk did not take a record.
func (s *Spool) failed(err error) error {
	s.retryAt = time.Now().Add(s.opt.Retry)
	return s.note("write", err)
}

// write adds a record to the newest file.
func (s *Spool) write(r record) error {
	size := int64(len(r.data) + recordHeader)
	s.makeRoom(size)
	seg, err := s.newest(r.index)
	if err != nil {
		return s.failed(err)
	}
	var data []byte
	if seg.size == 0 {
		data = newFile()
	}
	at := seg.size + int64(len(data))
	data = appendRecord(data, r)
	if _, err := s.out.Write(data); err != nil {
		s.abandon(seg)
		return s.failed(err)
	}
	seg.offsets = append(seg.offsets, uint32(at))
	seg.size += int64(len(data))
	s.dirty = true
	wake(s.written)
	return s.note("write", nil)
}

// newest is the segment that is written, a new one where need be.
func (s *Spool) newest(index uint64) (*segment, error) {
	if s.out != nil {
		if last := s.segments[len(s.segments)-1]; last.path == s.out.Name() {
			return last, nil
		}
		s.full = append(s.full, s.out)
		s.out = nil
	}
	path := s.pathOf(index)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, permissions)
	if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(s.dir, dirMode) == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, permissions)
	}
	if err != nil {
		return nil, err
	}
	seg := &segment{first: index, path: path}
	s.out = f
	s.segments = append(s.segments, seg)
	return seg, nil
}

// abandon closes a file that takes no more. What was written of a record is cut off; if that fails too, reading passes
// it over.
func (s *Spool) abandon(seg *segment) {
	_ = s.out.Truncate(seg.size)
	if len(seg.offsets) == 0 {
		_ = s.out.Close()
		_ = os.Remove(seg.path)
		s.segments = s.segments[:len(s.segments)-1]
	} else {
		s.full = append(s.full, s.out)
	}
	s.out = nil
}

func (s *Spool) read(seg *segment, index uint64) ([]byte, error) {
	if seg.path == "" {
		return seg.memory[index-seg.first], nil
	}
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
	r, err := readRecord(s.in, int64(seg.offsets[index-seg.first]))
	if err == nil && r.index != index {
		err = errDamaged
	}
	if err == nil {
		_ = s.note("read", nil)
	}
	return r.data, err
}

// writeFloor keeps what is done with. It is only a hint: without it some records are sent twice, and known by their id.
func (s *Spool) writeFloor() {
	if !s.attached {
		return
	}
	path := filepath.Join(s.dir, floorFile)
	text := strconv.FormatUint(s.floor, 10)
	text = fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
	err := os.WriteFile(path+tempSuffix, []byte(text), permissions)
	if err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	_ = s.note("floor", err)
}

// recover brings what is in memory to the disk, and finds out whether a disk that took nothing is well again.
func (s *Spool) recover() {
	if time.Now().Before(s.retryAt) || s.ready() != nil {
		return
	}
	if _, bad := s.troubles["write"]; bad {
		path := filepath.Join(s.dir, "probe"+tempSuffix)
		err := os.WriteFile(path, make([]byte, probeBytes), permissions)
		_ = os.Remove(path)
		if err != nil {
			_ = s.failed(err)
			return
		}
		_ = s.note("write", nil)
	}
	if _, bad := s.troubles["floor"]; bad {
		s.writeFloor()
	}
}

// Sync brings all records to the disk, those in memory first if it takes them again. That may take seconds on a busy
// one; appending and sending go on meanwhile.
func (s *Spool) Sync() {
	s.mu.Lock()
	s.recover()
	s.tell()
	out, full := s.out, s.full
	if !s.dirty {
		out = nil
	}
	s.full, s.dirty = nil, false
	s.mu.Unlock()
	if out == nil && len(full) == 0 {
		return
	}
	var errs []error
	for _, f := range full {
		errs = append(errs, f.Sync(), f.Close())
	}
	if out != nil {
		if err := out.Sync(); !errors.Is(err, os.ErrClosed) { // closed meanwhile: its records are done with
			errs = append(errs, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.note("sync", errors.Join(errs...))
}

// Close syncs and closes.
func (s *Spool) Close() error {
	s.Sync()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, f := range []*os.File{s.out, s.in} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	s.out, s.in = nil, nil
	s.unlock()
	return errors.Join(errs...)
}
