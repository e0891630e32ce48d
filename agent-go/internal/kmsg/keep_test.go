package kmsg

import (
	"os"
	"sync/atomic"
	"testing"
	"time"
)

func TestAPositionThatCannotBeKeptStopsNothing(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	o.StatePath = dir + "/file/state" // a file stands where the folder should be
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, o.Path, xidLineOf(1, 1))
	s := &sink{}
	_, stop := follow(t, o, s)
	s.wait(t, 1)
	time.Sleep(saveTime + 3*idleTime)
	write(t, o.Path, xidLineOf(2, 2))
	expectPIDs(t, s.wait(t, 2), 2) // read on, and the first not again
	stop()
}

func TestThePositionWaitsForEventsThatAreOnlyInMemory(t *testing.T) {
	o := options(t.TempDir())
	var durable atomic.Bool
	o.Durable = durable.Load
	write(t, o.Path, xidLineOf(1, 1))
	s := &sink{}
	_, stop := follow(t, o, s)
	s.wait(t, 1)
	time.Sleep(saveTime + 3*idleTime)
	stop() // as if the process ended here
	again := &sink{}
	_, stop = follow(t, o, again)
	again.wait(t, 1)
	durable.Store(true)
	time.Sleep(saveTime + 3*idleTime)
	stop()
	last := &sink{}
	_, stop = follow(t, o, last)
	time.Sleep(3 * idleTime)
	stop()
	if n := len(last.events()); n != 0 {
		t.Errorf("%d events are read again after the disk took them", n)
	}
}
