package kmsg

import (
	"errors"
	"os"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
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

func TestNoLogIsAbsent(t *testing.T) {
	if _, err := open(t.TempDir()+"/none", position{}); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("got %v", err)
	}
}
