package spool

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func someSegment() []byte {
	b := newFile()
	for i := range 4 {
		b = appendRecord(b, record{index: uint64(i), data: fmt.Appendf(nil, "record %d", i)})
	}
	return b
}

// FuzzScan reads anything as a segment: what is found can be read back, in order, and nothing else happens.
func FuzzScan(f *testing.F) {
	whole := someSegment()
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(append(whole[:40:40], whole[60:]...))
	f.Add([]byte("HLRSPL\x02\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		seg, err := scan(data, 0)
		if err != nil {
			return
		}
		last := uint32(0)
		for i, at := range seg.offsets {
			if at == 0 {
				continue
			}
			r, err := readRecord(bytes.NewReader(data), int64(at))
			if err != nil || r.index != uint64(i) || at <= last {
				t.Fatalf("record %d at %d behind %d: index %d, %v", i, at, last, r.index, err)
			}
			last = at
		}
	})
}

// FuzzOpen opens a spool that holds anything: it can be read to its end, and a new event comes out last.
func FuzzOpen(f *testing.F) {
	f.Add(someSegment(), []byte("2 00000000"))
	f.Add([]byte("rubbish"), []byte("rubbish"))
	f.Fuzz(func(t *testing.T, content, floor []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"0000000000000000" + suffix: content, floorFile: floor} {
			if err := os.WriteFile(filepath.Join(dir, name), data, permissions); err != nil {
				t.Fatal(err)
			}
		}
		s := Open(dir, Options{Grace: time.Nanosecond})
		defer func() { _ = s.Close() }()
		if err := s.Append([]byte("the newest")); err != nil {
			t.Fatal(err)
		}
		var got []Entry
		for more := s.Next(10); len(more) > 0; more = s.Next(10) {
			got = append(got, more...)
		}
		if n := len(got); n == 0 || string(got[n-1].Data) != "the newest" {
			t.Fatalf("%d records, not the newest last", n)
		}
		for _, e := range got {
			s.Ack(e, time.Now().Add(-time.Second))
		}
		s.Tidy(time.Now())
		if st := s.Stats(); st.Waiting != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

// TestWhateverHappensEachEventIsSentOrToldAsLost drives a spool at random through kills, full disks, outages of the bus
// and lack of room.
func TestWhateverHappensEachEventIsSentOrToldAsLost(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ordeal(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func ordeal(t *testing.T, r *rand.Rand) {
	dir := filepath.Join(smallDisk(t), "spool")
	o := Options{
		MaxBytes: 4000, SegmentBytes: 500, MemoryBytes: 1000, Retry: time.Nanosecond, Grace: time.Nanosecond, Tell: telling,
	}
	s := open(t, dir, o)
	appended, taken := 0, ""
	sent := map[string]bool{}
	told := map[string]uint64{} // by the place of the record that told, since one may be sent twice
	deliver := func(share int) {
		for _, e := range s.Next(20) {
			if r.IntN(100) >= share {
				continue
			}
			if n, ok := lostIn(e.Data); ok {
				told[fmt.Sprint(e.Index, string(e.Data))] = n
			} else {
				sent[string(e.Data)] = true
			}
			s.Ack(e, time.Now().Add(-time.Second))
		}
	}
	for range 600 {
		switch r.IntN(12) {
		default:
			if s.Append(fmt.Appendf(nil, "record %d", appended)) == nil {
				appended++
			}
		case 0:
			deliver(80)
		case 1:
			s.Rewind(false)
		case 2:
			s.Tidy(time.Now())
		case 3:
			s.Sync()
		case 4:
			if s.Durable() { // else the source would read again what is lost here
				kill(s)
				s = open(t, dir, o)
			}
		case 5:
			if taken == "" && r.IntN(4) == 0 {
				taken = hog(t, filepath.Dir(dir))
			} else if taken != "" {
				_ = os.Remove(taken)
				taken = ""
			}
		}
		if st := s.Stats(); st.Bytes > 4000+1000+100 {
			t.Fatalf("it takes %d bytes", st.Bytes)
		}
	}
	if taken != "" {
		_ = os.Remove(taken)
	}
	s.Sync()
	for s.Stats().Waiting > 0 {
		s.Rewind(false)
		deliver(100)
		s.Tidy(time.Now())
	}
	lost := uint64(0)
	for _, n := range told {
		lost += n
	}
	// One that a killed process had sent, but not yet noted as done with, may be told as lost too: never fewer.
	if got := len(sent) + int(lost); got < appended || len(sent) > appended {
		t.Errorf("%d appended, %d sent, %d told as lost: %+v", appended, len(sent), lost, s.Stats())
	}
}
