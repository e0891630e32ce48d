package spool

import (
	"os"
	"slices"
)

// makeRoom closes a segment that is full, and drops the oldest where the spool is.
func (s *Spool) makeRoom(size int64) {
	if s.out != nil && s.segments[len(s.segments)-1].size+size > s.opt.SegmentBytes {
		s.full = append(s.full, s.out)
		s.out = nil
	}
	for s.out == nil && s.bytes()+max(size, s.opt.SegmentBytes) > s.opt.MaxBytes && s.dropOldest() {
		continue
	}
}

// dropOldest gives up the oldest segment for a record that tells of it, and says whether there was one.
func (s *Spool) dropOldest() bool {
	if len(s.foreign) > 0 {
		_ = os.Remove(s.foreign[0].path)
		s.foreign = s.foreign[1:]
		return true
	}
	n := 1
	if len(s.segments) > 0 && s.segments[0].standIn {
		n = 2 // what it tells is told again with the next
	}
	if len(s.segments) < n {
		return false
	}
	var lost [][]byte
	for _, seg := range s.segments[:n] {
		lost = append(lost, s.unsent(seg)...)
	}
	s.exchange(n, lost)
	return true
}

// unsent takes the records of a segment that the bus does not have.
func (s *Spool) unsent(seg *segment) (lost [][]byte) {
	for i := max(seg.first, s.floor); i < seg.end(); i++ {
		if _, ok := s.acked[i]; ok || !seg.has(i) {
			continue
		}
		data, err := s.read(seg, i)
		if err != nil {
			s.lose(seg, i, err)
			continue
		}
		s.waiting--
		lost = append(lost, data)
	}
	return lost
}

// exchange removes the first n segments and puts a record that tells of their lost ones in their place. It is written
// first: a process that is killed in between leaves both, and the next one removes the old.
func (s *Spool) exchange(n int, lost [][]byte) {
	end := s.segments[n-1].end()
	s.floor = max(s.floor, end)
	var seg *segment
	if s.opt.Tell != nil && len(lost) > 0 {
		data, dropped := s.opt.Tell(s.untold, lost)
		s.dropped, s.untold = s.dropped+dropped, 0
		seg = &segment{first: end - 1, standIn: true, offsets: []uint32{uint32(fileHeader)}, memory: [][]byte{data}}
		seg.size = seg.memorySize()
		s.inMemory += seg.size
		s.floor = end - 1
		_ = s.toFile(seg)
	} else {
		s.dropped += uint64(len(lost))
	}
	for range n {
		if seg != nil && s.segments[0].path == seg.path {
			s.segments[0].path = "" // that is the new one's
			s.segments[0].memory = nil
		}
		s.remove(s.segments[0])
	}
	s.sent = max(s.sent, s.floor)
	if seg == nil {
		return
	}
	s.segments = slices.Insert(s.segments, 0, seg)
	s.waiting++
	s.sent = seg.first
	if seg.path == "" {
		_ = s.toFile(seg) // there is room now, or else later
	}
}

func (s *Spool) remove(seg *segment) {
	for i := seg.first; i < seg.end(); i++ {
		delete(s.acked, i)
	}
	if s.in != nil && s.inFirst == seg.first {
		_ = s.in.Close()
		s.in = nil
	}
	if seg.path != "" {
		_ = os.Remove(seg.path)
	} else {
		s.inMemory -= seg.memorySize()
	}
	s.segments = s.segments[1:]
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
