package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, dir string, o Options) *Spool {
	t.Helper()
	s := Open(dir, o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// kill leaves the spool as the end of its process would.
func kill(s *Spool) { s.unlock() }

func fill(t *testing.T, s *Spool, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

func take(t *testing.T, s *Spool, n int) []Entry {
	t.Helper()
	return s.Next(n)
}

func expect(t *testing.T, got []Entry, from, to int) {
	t.Helper()
	if len(got) != to-from {
		t.Fatalf("%d records, want %d", len(got), to-from)
	}
	for i, e := range got {
		if want := fmt.Sprintf("record %d", from+i); string(e.Data) != want {
			t.Fatalf("got %q, want %q", e.Data, want)
		}
	}
}

func TestRecordsSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	fill(t, s, 0, 10)
	kill(s)
	s = open(t, dir, Options{})
	expect(t, take(t, s, 100), 0, 10)
	fill(t, s, 10, 12)
	expect(t, take(t, s, 100), 10, 12)
	if st := s.Stats(); st.Waiting != 12 || st.Dropped != 0 {
		t.Errorf("got %+v", st)
	}
}

func TestATornRecordIsCutOff(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	fill(t, s, 0, 3)
	_ = s.Close()
	files, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(files[0], info.Size()-2); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	expect(t, take(t, s, 100), 0, 2)
	fill(t, s, 2, 3)
	expect(t, take(t, s, 100), 2, 3)
}

func TestAFlippedBitIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	fill(t, s, 0, 2)
	_ = s.Close()
	files, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, take(t, open(t, dir, Options{}), 100), 0, 1)
}

func TestAcknowledgedRecordsStayForTheGraceTime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Grace: time.Second})
	fill(t, s, 0, 3)
	got := take(t, s, 100)
	now := time.Unix(1000, 0)
	s.Ack(got[0], now)
	s.Ack(got[2], now)
	s.Tidy(now.Add(500 * time.Millisecond))
	s.Rewind(true) // the bus came back and may have forgotten
	expect(t, take(t, s, 100), 0, 3)
	s.Ack(got[0], now)
	s.Ack(got[2], now)
	s.Tidy(now.Add(2 * time.Second))
	s.Rewind(true)
	expect(t, take(t, s, 100), 1, 3) // behind the one that is missing an acknowledgement nothing goes
	if st := s.Stats(); st.Waiting != 2 {
		t.Errorf("got %+v", st)
	}
}

func TestWhatIsDoneWithDoesNotComeBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Grace: time.Second, SegmentBytes: 64})
	fill(t, s, 0, 10)
	now := time.Unix(1000, 0)
	for _, e := range take(t, s, 7) {
		s.Ack(e, now)
	}
	s.Tidy(now.Add(time.Minute))
	_ = s.Close()
	expect(t, take(t, open(t, dir, Options{}), 100), 7, 10)
}

func TestNumbersGoOnAfterAllIsDone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	fill(t, s, 0, 5)
	for _, e := range take(t, s, 100) {
		s.Ack(e, time.Unix(1, 0))
	}
	s.Tidy(time.Now())
	if st := s.Stats(); st.Bytes != 0 || st.Waiting != 0 {
		t.Errorf("got %+v", st)
	}
	fill(t, s, 5, 6)
	got := take(t, s, 100)
	expect(t, got, 5, 6)
	if got[0].Index != 5 {
		t.Errorf("index %d", got[0].Index)
	}
	_ = s.Close()
	s = open(t, dir, Options{})
	expect(t, take(t, s, 100), 5, 6)
}

func TestAFullSpoolDropsTheOldestAndCounts(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 1024, SegmentBytes: 256})
	fill(t, s, 0, 100)
	st := s.Stats()
	if st.Bytes > 1024 || st.Dropped == 0 || st.Waiting+st.Dropped != 100 {
		t.Errorf("got %+v", st)
	}
	got := take(t, s, 1000)
	expect(t, got, int(st.Dropped), 100)
}

func TestASpoolThatIsSentWhileItIsFullGoesOn(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 1024, SegmentBytes: 256})
	fill(t, s, 0, 20)
	got := take(t, s, 5)
	fill(t, s, 20, 200)
	for _, e := range got {
		s.Ack(e, time.Now())
	}
	st := s.Stats()
	left := take(t, s, 1000)
	expect(t, left, 200-len(left), 200)
	if st.Waiting != uint64(len(left)) {
		t.Errorf("%d waiting, %d left", st.Waiting, len(left))
	}
}

func TestTooLargeRecordsAreRefused(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if s.Append(nil) == nil || s.Append(make([]byte, largest+1)) == nil {
		t.Error("accepted")
	}
}
