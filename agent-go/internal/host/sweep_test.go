package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"heeler.dev/schemas/go/heelerv1"
)

const kernelFlag = ofKernelFlag | 0x40

func TestThreadsInUninterruptibleSleep(t *testing.T) {
	n := newNode(t)
	n.process(200, 0, "S python", "D cuda (1) x", "D other")
	n.process(300, 0, "D a\x1b[31m\xff b")
	n.process(50, kernelFlag, "D kworker/u9:1")
	n.process(60, kernelFlag, "I kworker/idle")
	n.process(5000, 0, "D outside")
	n.put(n.proc, "200/cgroup", "0::/system.slice/slurmstepd.scope/job_81234/step_0/user/task_0\n")
	n.put(n.proc, "self/stat", "1 (x) D\n") // not a process's own name
	m := n.read()
	if *m.ThreadsUninterruptible != 5 {
		t.Errorf("%d threads", *m.ThreadsUninterruptible)
	}
	want := map[uint64]heelerv1.UninterruptibleProc{
		200:  {PID: 200, Comm: "cuda (1) x", JobID: "81234"},
		300:  {PID: 300, Comm: "a?[31m? b"},
		5000: {PID: 5000, Comm: "outside"},
		50:   {PID: 50, Comm: "kworker/u9:1"},
	}
	if len(m.Uninterruptible) != len(want) {
		t.Errorf("named %+v", m.Uninterruptible)
	}
	for _, p := range m.Uninterruptible {
		if p.PID == 200 && p.Comm == "other" { // the order of a folder is not the kernel's here
			p.Comm = "cuda (1) x"
		}
		if p != want[p.PID] {
			t.Errorf("named %+v", p)
		}
	}
	if last := m.Uninterruptible[len(m.Uninterruptible)-1]; last.PID != 50 {
		t.Errorf("a kernel thread stands before a user's: %+v", m.Uninterruptible)
	}
}

func TestManyAreCountedAndSomeNamed(t *testing.T) {
	n := newNode(t)
	for i := range 40 {
		n.process(2000+i, kernelFlag*uint64(i%2), "D hung")
	}
	m := n.read()
	if *m.ThreadsUninterruptible != 40 || len(m.Uninterruptible) != mostNamed {
		t.Fatalf("%d threads, %d named", *m.ThreadsUninterruptible, len(m.Uninterruptible))
	}
	for _, p := range m.Uninterruptible {
		if p.PID%2 == 1 {
			t.Errorf("a kernel thread pushed a user's out: %+v", p)
		}
	}
}

func TestALongSweepIsSpreadOverReadings(t *testing.T) {
	n := newNode(t)
	for i := range 20 {
		n.process(100+20*i, 0, slices.Repeat([]string{"D x"}, 10)...)
	}
	n.c.SweepReads = 12
	m := n.read()
	if m.ThreadsUninterruptible != nil || m.Absent["threads_uninterruptible"] != "not_yet_counted" {
		t.Errorf("half a sweep gives %v, absent %v", m.ThreadsUninterruptible, m.Absent)
	}
	readings := 1
	for ; m.ThreadsUninterruptible == nil && readings < 10; readings++ {
		m = n.read()
	}
	if readings != 4 || *m.ThreadsUninterruptible != 200 {
		t.Fatalf("after %d readings %v", readings, m.ThreadsUninterruptible)
	}
	// While the next sweep runs, with smaller steps, the last one stands.
	for i := range 20 {
		if err := os.RemoveAll(filepath.Join(n.proc, fmt.Sprint(100+20*i))); err != nil {
			t.Fatal(err)
		}
		n.process(100+20*i, 0, "S x")
	}
	for i, want := range []uint64{200, 0} {
		if m = n.read(); *m.ThreadsUninterruptible != want {
			t.Errorf("reading %d of the second sweep: %d", i, *m.ThreadsUninterruptible)
		}
	}
}

func TestProcessesThatEndDuringTheSweep(t *testing.T) {
	n := newNode(t)
	for i := range 20 {
		n.process(100+20*i, 0, slices.Repeat([]string{"D x"}, 10)...)
	}
	n.c.SweepReads = 11
	n.read()
	for i := range 20 {
		if err := os.RemoveAll(filepath.Join(n.proc, fmt.Sprint(100+20*i))); err != nil {
			t.Fatal(err)
		}
	}
	m := n.read()
	for range 10 {
		m = n.read()
	}
	if *m.ThreadsUninterruptible != 0 {
		t.Errorf("%d threads", *m.ThreadsUninterruptible)
	}
}

func TestTheSweepOfThisMachineFindsThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("no /proc")
	}
	s := sweep{proc: "/proc"}
	before := openFiles(t)
	if err := s.run(1 << 20); err != nil || s.last == nil {
		t.Fatalf("%+v, %v", s.last, err)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are left open", after-before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}
