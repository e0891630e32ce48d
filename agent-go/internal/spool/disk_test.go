package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// telling makes stand-in records whose text is the number of records lost.
func telling(unread uint64, dropped [][]byte) ([]byte, uint64) {
	var told, lost uint64
	for _, d := range dropped {
		if n, ok := lostIn(d); ok {
			told += n
		} else {
			lost++
		}
	}
	return fmt.Appendf(nil, "lost %d", unread+told+lost), lost
}

func lostIn(data []byte) (n uint64, ok bool) {
	_, err := fmt.Sscanf(string(data), "lost %d", &n)
	return n, err == nil
}

// account adds up what is told as lost and counts the records that are there.
func account(t *testing.T, got []Entry) (lost uint64, there int) {
	t.Helper()
	for _, e := range got {
		if n, ok := lostIn(e.Data); ok {
			lost += n
		} else {
			there++
		}
	}
	return lost, there
}

func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	return files
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), permissions); err != nil {
		t.Fatal(err)
	}
}

// written makes a spool of ten records in several segments and ends its process.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, Options{SegmentBytes: 100})
	fill(t, s, 0, 10)
	kill(s)
	return dir
}

func TestADamagedRecordCostsOnlyItself(t *testing.T) {
	dir := written(t)
	edit(t, segmentFiles(t, dir)[1], func(b []byte) []byte {
		b[fileHeader+recordHeader+2] ^= 1
		return b
	})
	s := open(t, dir, Options{Tell: telling})
	lost, there := account(t, take(t, s, 100))
	if st := s.Stats(); lost != 1 || there != 9 || st.Damaged != 1 {
		t.Errorf("%d told as lost, %d there, %+v", lost, there, st)
	}
	fill(t, s, 10, 11)
	expect(t, take(t, s, 100), 10, 11)
}

func TestAnyDamageIsCountedAndTheRestIsSent(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"a flipped length": func(b []byte) []byte { b[fileHeader+6] ^= 0x40; return b },
		"a flipped mark":   func(b []byte) []byte { b[fileHeader] ^= 1; return b },
		"a hole of zeros":  func(b []byte) []byte { copy(b[fileHeader:], make([]byte, 20)); return b },
		"rubbish between": func(b []byte) []byte {
			return append(b[:fileHeader:fileHeader], append([]byte("rubbish"), b[fileHeader+30:]...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t)
			edit(t, segmentFiles(t, dir)[1], change)
			s := open(t, dir, Options{Tell: telling})
			lost, there := account(t, take(t, s, 100))
			if int(lost)+there != 10 || there < 8 {
				t.Errorf("%d told as lost, %d there", lost, there)
			}
		})
	}
}

func TestASegmentThatIsGoneIsCounted(t *testing.T) {
	dir := written(t)
	if err := os.Remove(segmentFiles(t, dir)[1]); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{Tell: telling})
	lost, there := account(t, take(t, s, 100))
	if int(lost)+there != 10 || lost == 0 {
		t.Errorf("%d told as lost, %d there", lost, there)
	}
}

func TestFilesThatAreNoSegmentsAreLeftAloneAndBounded(t *testing.T) {
	for name, content := range map[string][]byte{
		"garbage":          bytes.Repeat([]byte("garbage "), 100),
		"zeros":            make([]byte, 5000),
		"a future version": binary.LittleEndian.AppendUint16([]byte(fileMark), fileVersion+1),
		"another header":   appendRecord([]byte("HLRSPLxx"), record{index: 3, data: []byte("a")}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t)
			edit(t, segmentFiles(t, dir)[0], func([]byte) []byte { return content })
			s := open(t, dir, Options{Tell: telling})
			lost, there := account(t, take(t, s, 100))
			if st := s.Stats(); st.Foreign != 1 || there+int(lost) > 10 || there < 6 {
				t.Errorf("%d told as lost, %d there, %+v", lost, there, st)
			}
			aside, _ := filepath.Glob(filepath.Join(dir, "*"+asideSuffix))
			if len(aside) != 1 {
				t.Errorf("aside: %q", aside)
			}
			kill(s)
			s = open(t, dir, Options{MaxBytes: 1024, SegmentBytes: 256})
			fill(t, s, 10, 100)
			if st := s.Stats(); st.Foreign != 0 || st.Bytes > 1024 {
				t.Errorf("when room is needed: %+v", st)
			}
		})
	}
}

func TestEmptyAndTornFilesAreNoLoss(t *testing.T) {
	for name, content := range map[string][]byte{
		"empty": nil, "half a header": []byte("HLR"), "a header": newFile(),
		"half a record": appendRecord(newFile(), record{index: 10, data: []byte("a record")})[:fileHeader+22],
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t)
			if err := os.WriteFile(filepath.Join(dir, "000000000000000a"+suffix), content, permissions); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, Options{Tell: telling})
			expect(t, take(t, s, 100), 0, 10)
			if st := s.Stats(); st.Damaged != 0 || st.Foreign != 0 {
				t.Errorf("%+v", st)
			}
			fill(t, s, 10, 12)
			expect(t, take(t, s, 100), 10, 12)
		})
	}
}

func TestStrangeNamesStopNothing(t *testing.T) {
	dir := written(t)
	for _, name := range []string{"notes.txt", "zz" + suffix, "ffffffffffffffff" + suffix, "0000000000000005" + suffix + tempSuffix} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), permissions); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "00000000000000ff"+suffix), 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	fill(t, s, 10, 12)
	expect(t, take(t, s, 100), 0, 12)
}

func TestADamagedFloorSendsAgainAndLosesNothing(t *testing.T) {
	for _, text := range []string{"", "9", "9 00000000", "999999999999 12345678", "x y"} {
		dir := written(t)
		if err := os.WriteFile(filepath.Join(dir, floorFile), []byte(text), permissions); err != nil {
			t.Fatal(err)
		}
		expect(t, take(t, open(t, dir, Options{}), 100), 0, 10)
	}
}

func TestWhatIsDroppedIsToldInItsPlace(t *testing.T) {
	dir := t.TempDir()
	o := Options{MaxBytes: 1024, SegmentBytes: 256, Tell: telling}
	s := open(t, dir, o)
	fill(t, s, 0, 300)
	check := func(s *Spool) {
		t.Helper()
		got := take(t, s, 1000)
		lost, there := account(t, got)
		if int(lost)+there != 300 || lost == 0 {
			t.Fatalf("%d told as lost, %d there", lost, there)
		}
		if n, ok := lostIn(got[0].Data); !ok || n != lost {
			t.Errorf("first comes %q", got[0].Data)
		}
		expect(t, got[1:], int(lost), 300)
	}
	check(s)
	if st := s.Stats(); st.Bytes > 1024 || int(st.Dropped)+int(st.Waiting)-1 != 300 {
		t.Errorf("%+v", st)
	}
	kill(s)
	s = open(t, dir, o)
	check(s)
	for range 2 { // a late acknowledgement of what was dropped is not one of what tells of it
		s.Ack(Entry{Index: s.segments[0].first, of: &segment{}}, time.Now())
	}
	s.Rewind(false)
	check(s)
}

func TestAProcessKilledWhileItDropsTellsOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{SegmentBytes: 100})
	fill(t, s, 0, 10)
	end := s.segments[0].end()
	kill(s)
	// The record that stands for the first segment is written, the segment is still there.
	data := appendRecord(newFile(), record{index: end - 1, data: fmt.Appendf(nil, "lost %d", end), standIn: true})
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%016x%s", end-1, suffix)), data, permissions); err != nil {
		t.Fatal(err)
	}
	lost, there := account(t, take(t, open(t, dir, Options{}), 100))
	if lost != end || there != 10-int(end) {
		t.Errorf("%d told as lost, %d there", lost, there)
	}
}

func TestTwoProcessesDoNotShareASpool(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, Options{})
	fill(t, first, 0, 2)
	second := open(t, dir, Options{Retry: time.Millisecond})
	fill(t, second, 2, 4)
	expect(t, take(t, second, 100), 2, 4)
	if st := second.Stats(); !strings.Contains(st.Trouble, errInUse.Error()) || second.Durable() {
		t.Errorf("%+v", st)
	}
	kill(first)
	time.Sleep(2 * time.Millisecond)
	second.Sync()
	if st := second.Stats(); st.Trouble != "" || !second.Durable() || st.Waiting != 4 {
		t.Errorf("after the first ended: %+v", st)
	}
	expect(t, take(t, second, 100), 0, 4)
}

func TestAFolderThatCannotBeUsedIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	s := open(t, dir, Options{Retry: time.Millisecond})
	fill(t, s, 0, 3)
	got := take(t, s, 100)
	expect(t, got, 0, 3)
	s.Ack(got[0], time.Now())
	if st := s.Stats(); st.Trouble == "" || st.Memory != 3 || st.Waiting != 2 {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	s.Sync()
	if st := s.Stats(); st.Trouble != "" || st.Memory != 0 || st.Waiting != 2 || !s.Durable() {
		t.Errorf("%+v", st)
	}
	kill(s)
	expect(t, take(t, open(t, dir, Options{}), 100), 1, 3)
}

// smallDisk mounts a file system of a few pages.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	return dir
}

// hog takes all the room that is left.
func hog(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "hog")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_ = f.Close()
	return path
}

func TestAFullDiskKeepsWhatItHasAndGoesOn(t *testing.T) {
	dir := smallDisk(t)
	o := Options{Retry: time.Millisecond, MemoryBytes: 4096, SegmentBytes: 1 << 14}
	s := open(t, filepath.Join(dir, "spool"), o)
	fill(t, s, 0, 10)
	taken := hog(t, dir)
	n := 10
	for ; n < 10000; n++ {
		if err := s.Append(fmt.Appendf(nil, "record %d", n)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "no space") {
				t.Fatal(err)
			}
			break
		}
	}
	st := s.Stats()
	if n < 100 || n == 10000 || !strings.Contains(st.Trouble, "no space left") || st.Memory == 0 || s.Durable() {
		t.Fatalf("%d taken, %+v", n, st)
	}
	expect(t, take(t, s, 10000), 0, n)
	// What is on disk outlives the process even so.
	onDisk := n - int(st.Memory)
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	s.Sync()
	if st := s.Stats(); st.Trouble != "" || st.Memory != 0 || !s.Durable() {
		t.Errorf("with room again: %+v", st)
	}
	fill(t, s, n, n+5)
	kill(s)
	s = open(t, filepath.Join(dir, "spool"), o)
	expect(t, take(t, s, 10000), 0, n+5)
	if st := s.Stats(); st.Damaged != 0 || onDisk < 10 {
		t.Errorf("%d had been on disk, %+v", onDisk, st)
	}
}

func TestADiskThatFilledUpIsSeenToBeWellWithoutAnEvent(t *testing.T) {
	dir := smallDisk(t)
	s := open(t, filepath.Join(dir, "spool"), Options{Retry: time.Millisecond, Grace: time.Nanosecond})
	fill(t, s, 0, 1)
	taken := hog(t, dir)
	for i := 1; s.Stats().Memory == 0; i++ {
		fill(t, s, i, i+1)
	}
	for _, e := range take(t, s, 100000) {
		s.Ack(e, time.Now().Add(-time.Second))
	}
	s.Tidy(time.Now())
	if st := s.Stats(); st.Waiting != 0 || st.Trouble == "" {
		t.Fatalf("%+v", st)
	}
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	s.Sync()
	if st := s.Stats(); st.Trouble != "" {
		t.Errorf("%+v", st)
	}
}

func TestAReadOnlyDiskIsReadAndEventsGoThroughMemory(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "spool")
	s := open(t, path, Options{})
	fill(t, s, 0, 5)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Skipf("cannot remount: %v", err)
		}
	}
	remount(syscall.MS_RDONLY)
	s = open(t, path, Options{Retry: time.Millisecond, Grace: time.Nanosecond})
	fill(t, s, 5, 8)
	got := take(t, s, 100)
	expect(t, got, 0, 8)
	if st := s.Stats(); !strings.Contains(st.Trouble, "read-only") || st.Memory != 3 {
		t.Errorf("%+v", st)
	}
	for _, e := range got[:6] {
		s.Ack(e, time.Now().Add(-time.Second))
	}
	s.Tidy(time.Now())
	remount(0)
	time.Sleep(2 * time.Millisecond)
	s.Sync()
	fill(t, s, 8, 9)
	kill(s)
	expect(t, take(t, open(t, path, Options{}), 100), 6, 9)
}

func TestASegmentThatIsDeletedUnderneathIsToldAsLost(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{SegmentBytes: 100, Tell: telling})
	fill(t, s, 0, 10)
	if err := os.Remove(segmentFiles(t, dir)[1]); err != nil {
		t.Fatal(err)
	}
	got := take(t, s, 100)
	s.Sync()
	got = append(got, take(t, s, 100)...)
	lost, there := account(t, got)
	if int(lost)+there != 10 || lost == 0 {
		t.Errorf("%d told as lost, %d there", lost, there)
	}
}
