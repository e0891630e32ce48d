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
	"syscall"
	"time"
)

// attach makes the folder ours and reads what is in it. Records that came meanwhile go behind those that are there.
func (s *Spool) attach() {
	entries, err := s.takeFolder()
	if s.note("open", err) != nil {
		s.retryAt = time.Now().Add(s.opt.Retry)
		return
	}
	var waiting [][]byte
	for _, g := range s.segments {
		for i := max(g.first, s.floor); i < g.end(); i++ {
			if _, done := s.acked[i]; !done {
				waiting = append(waiting, g.memory[i-g.first])
			}
		}
	}
	s.segments, s.inMemory, s.waiting, s.attached = nil, 0, 0, true
	clear(s.acked)
	s.load(entries)
	s.tell()
	for _, data := range waiting {
		// There was room for them in memory, so there is now.
		_ = s.append(data)
	}
}

// takeFolder makes and locks the folder, as far as its file system can be written, and lists it.
func (s *Spool) takeFolder() ([]fs.DirEntry, error) {
	if err := os.MkdirAll(s.dir, dirMode); err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, permissions)
	if err != nil {
		f, err = os.Open(path)
	}
	if err == nil { // else the disk is full or read-only: what is there can still be sent
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, errInUse
		}
		s.lock = f
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.unlock()
	}
	return entries, err
}

func (s *Spool) unlock() {
	if s.lock != nil {
		_ = s.lock.Close()
		s.lock = nil
	}
}

// load reads the segments that are there.
func (s *Spool) load(entries []fs.DirEntry) {
	for _, e := range entries {
		s.loadFile(e)
	}
	slices.SortFunc(s.segments, func(a, b *segment) int { return int(int64(a.first) - int64(b.first)) })
	s.separate()
	s.floor = s.readFloor()
	var damaged uint64
	for i, g := range s.segments {
		if i > 0 {
			damaged += g.first - max(s.segments[i-1].end(), min(s.floor, g.first))
		}
		for index := max(g.first, s.floor); index < g.end(); index++ {
			if !g.has(index) {
				damaged++
			}
		}
		s.next = g.end()
	}
	s.next = max(s.next, s.floor)
	s.collect()
	s.sent = s.low()
	for _, g := range s.segments {
		s.waiting += g.records(s.floor)
	}
	if damaged > 0 {
		s.opt.Log.Error("events on disk are damaged", "lost", damaged)
		s.damaged += damaged
		s.untold += damaged
	}
	if n := len(s.foreign); n > 0 {
		s.opt.Log.Error("files in the spool are no segments of this version; they are left alone", "files", n)
	}
}

// loadFile takes one file of the folder.
func (s *Spool) loadFile(e fs.DirEntry) {
	path := filepath.Join(s.dir, e.Name())
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if strings.HasSuffix(path, tempSuffix) {
		_ = os.Remove(path) // its writer was killed
		return
	}
	if strings.HasSuffix(path, asideSuffix) {
		s.foreign = append(s.foreign, foreignFile{path, info.Size()})
		return
	}
	name, ok := strings.CutSuffix(e.Name(), suffix)
	first, err := strconv.ParseUint(name, 16, 64)
	if !ok || err != nil {
		return
	}
	seg, err := s.scanFile(path, info.Size(), first)
	switch {
	case err != nil:
		s.setAside(path, info.Size())
	case len(seg.offsets) == 0:
		_ = os.Remove(path)
	default:
		seg.path = path
		s.segments = append(s.segments, seg)
	}
}

// scanFile reads a file, unless it is larger than any segment.
func (s *Spool) scanFile(path string, size int64, first uint64) (*segment, error) {
	if size > max(s.opt.SegmentBytes, defaultSegm)+largest+recordHeader {
		return nil, errForeign
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return scan(data, first)
}

func (s *Spool) setAside(path string, size int64) {
	aside := path + asideSuffix
	if os.Rename(path, aside) == nil {
		path = aside
	}
	s.foreign = append(s.foreign, foreignFile{path, size})
}

// separate ends overlaps. There is one where a process was killed between writing the record that stands for a segment
// and removing that.
func (s *Spool) separate() {
	for i := 0; i+1 < len(s.segments); {
		a, b := s.segments[i], s.segments[i+1]
		switch {
		case a.end() <= b.first:
			i++
		case b.standIn:
			_ = os.Remove(a.path)
			s.segments = slices.Delete(s.segments, i, i+1)
			i = max(0, i-1)
		default:
			a.offsets = a.offsets[:b.first-a.first]
			i++
		}
	}
}

func (s *Spool) readFloor() uint64 {
	data, err := os.ReadFile(filepath.Join(s.dir, floorFile))
	if err != nil {
		return 0
	}
	text, sum, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > largestIndex || sum != fmt.Sprintf("%08x", crc32.Checksum([]byte(text), castagnoli)) {
		return 0
	}
	return n
}
