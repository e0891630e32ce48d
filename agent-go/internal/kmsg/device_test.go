package kmsg

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

func TestTheKernelsOwnLog(t *testing.T) {
	const path = "/dev/kmsg"
	if f, err := os.Open(path); err != nil {
		t.Skipf("cannot read %s: %v", path, err)
	} else {
		_ = f.Close()
	}
	r, err := open(path, position{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	records := 0
	for {
		it, err := r.next(100 * time.Millisecond)
		if errors.Is(err, errIdle) {
			break
		}
		if errors.Is(err, errOverrun) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRecord(it.data); err != nil {
			t.Errorf("%v: %q", err, it.data)
		}
		if records++; records > 100_000 {
			t.Fatal("no end")
		}
	}
	if records == 0 {
		t.Skip("the log is empty")
	}
}

// TestALineWrittenToTheKernelsLog writes to the log of this machine, so it must be asked for.
func TestALineWrittenToTheKernelsLog(t *testing.T) {
	if os.Getenv("HEELER_WRITE_KMSG") == "" {
		t.Skip("HEELER_WRITE_KMSG is not set")
	}
	o := options(t.TempDir())
	o.Path, o.AnyFacility = "/dev/kmsg", true
	s := &sink{}
	source, stop := follow(t, o, s)
	time.Sleep(time.Second)
	text := fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=test, Ch %08x", time.Now().UnixNano()&0xFFFFFFFF)
	if err := os.WriteFile("/dev/kmsg", []byte("<4>"+text+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	find := func() *heelerv1.KernelEvent {
		for _, m := range s.events() {
			if strings.Contains(m.Raw, text) {
				return m
			}
		}
		return nil
	}
	for deadline := time.Now().Add(5 * time.Second); find() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the line does not come; counts %v", source.Counts())
		}
	}
	if m := find(); *m.Trusted || *m.ApproximateTS || *m.Code != 45 || m.Seq != *m.KmsgSeq {
		t.Errorf("got %+v", m)
	}
	stop()
	again := &sink{}
	follow(t, o, again)
	time.Sleep(time.Second)
	for _, m := range again.events() {
		if strings.Contains(m.Raw, text) {
			t.Error("told again after a restart")
		}
	}
}

func TestNoLogIsAbsent(t *testing.T) {
	if _, err := open(t.TempDir()+"/none", position{}); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("got %v", err)
	}
}
