package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
)

// A segment file begins with its mark and version. Each record carries a mark to find it by, its length, its index and
// a checksum over all but the mark, so that behind a damaged one the others are found, and it is known how many are gone.
const (
	fileMark     = "HLRSPL"
	fileVersion  = 1
	fileHeader   = len(fileMark) + 2
	recordHeader = 20
	standInBit   = 1 << 31 // in the length: the record stands for others that were dropped
	largest      = 1 << 20
	largestIndex = math.MaxUint64 >> 2
	longestHole  = 1 << 16 // more records than that no segment holds
	mostTries    = 1000    // to find the next record behind a damaged one
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	recordMark = []byte{0x9e, 'H', 'L', 0xd3}

	errTorn    = errors.New("torn record")
	errDamaged = errors.New("damaged record")
	errForeign = errors.New("not a segment of this version")
)

// segment is one file, or the same in memory while the disk takes no more.
type segment struct {
	first   uint64
	offsets []uint32 // where each record begins; 0 for one that is lost
	size    int64
	path    string // empty in memory
	memory  [][]byte
	standIn bool // holds one record, which tells of others that were dropped
}

func (s *segment) end() uint64 { return s.first + uint64(len(s.offsets)) }

// has tells whether a record is there and can be read.
func (s *segment) has(index uint64) bool {
	return index >= s.first && index < s.end() && s.offsets[index-s.first] != 0
}

func (s *segment) lose(index uint64) { s.offsets[index-s.first] = 0 }

// records is how many there are from an index on.
func (s *segment) records(from uint64) (n uint64) {
	for i := max(from, s.first); i < s.end(); i++ {
		if s.has(i) {
			n++
		}
	}
	return n
}

// record is one record as read.
type record struct {
	index   uint64
	data    []byte
	standIn bool
}

// newFile begins a segment file.
func newFile() []byte {
	return binary.LittleEndian.AppendUint16([]byte(fileMark), fileVersion)
}

func appendRecord(b []byte, r record) []byte {
	length := uint32(len(r.data))
	if r.standIn {
		length |= standInBit
	}
	at := len(b) + len(recordMark)
	b = append(b, recordMark...)
	b = binary.LittleEndian.AppendUint32(b, length)
	b = binary.LittleEndian.AppendUint64(b, r.index)
	sum := crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, r.data)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, r.data...)
}

// parseRecord reads the record that b begins with, and says how long it is.
func parseRecord(b []byte) (record, int, error) {
	if len(b) < recordHeader {
		return record{}, 0, errTorn
	}
	length := binary.LittleEndian.Uint32(b[4:])
	n := int(length &^ standInBit)
	if !bytes.Equal(b[:4], recordMark) || n == 0 || n > largest {
		return record{}, 0, errDamaged
	}
	if len(b) < recordHeader+n {
		return record{}, 0, errTorn
	}
	data := b[recordHeader : recordHeader+n]
	sum := crc32.Update(crc32.Checksum(b[4:16], castagnoli), castagnoli, data)
	if sum != binary.LittleEndian.Uint32(b[16:]) {
		return record{}, recordHeader + n, errDamaged
	}
	r := record{binary.LittleEndian.Uint64(b[8:]), data, length&standInBit != 0}
	return r, recordHeader + n, nil
}

// readRecord reads the record that begins at a place in a file.
func readRecord(f io.ReaderAt, at int64) (record, error) {
	whole := make([]byte, recordHeader)
	if _, err := f.ReadAt(whole, at); err != nil {
		return record{}, err
	}
	n := int(binary.LittleEndian.Uint32(whole[4:]) &^ standInBit)
	if n > largest {
		return record{}, errDamaged
	}
	whole = append(whole, make([]byte, n)...)
	if _, err := f.ReadAt(whole[recordHeader:], at+recordHeader); err != nil {
		return record{}, err
	}
	r, _, err := parseRecord(whole)
	return r, err
}

// scan finds the records of a segment file whose first should have the given index. Damaged ones are passed over, and
// leave a hole. One that is torn at the end was never confirmed, and leaves none.
func scan(data []byte, first uint64) (*segment, error) {
	seg := &segment{first: first, size: int64(len(data))}
	if len(data) < fileHeader {
		return seg, nil // the process was killed as it began the file
	}
	if !bytes.Equal(data[:fileHeader], newFile()) || first > largestIndex {
		return nil, errForeign
	}
	damaged, torn, tries := false, false, 0
	for at := fileHeader; at < len(data); {
		r, n, err := parseRecord(data[at:])
		if err == nil && seg.add(r, at) {
			at, damaged = at+n, false
			continue
		}
		damaged = damaged || n > 0
		torn = torn || errors.Is(err, errTorn)
		next := bytes.Index(data[at+1:], recordMark)
		if tries++; next < 0 || tries > mostTries {
			break
		}
		at += 1 + next
	}
	if damaged {
		seg.offsets = append(seg.offsets, 0)
	}
	if len(seg.offsets) == 0 && len(data) > fileHeader && !torn {
		return nil, errForeign
	}
	return seg, nil
}

// add takes a record that was found, unless its index cannot be right.
func (s *segment) add(r record, at int) bool {
	if r.index < s.end() || r.index-s.end() > longestHole {
		return false
	}
	for s.end() < r.index {
		s.offsets = append(s.offsets, 0)
	}
	s.offsets = append(s.offsets, uint32(at))
	s.standIn = r.standIn && len(s.offsets) == 1
	return true
}
