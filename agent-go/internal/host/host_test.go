package host

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// node is a /proc and a /sys made by hand.
type node struct {
	t         *testing.T
	proc, sys string
	now       time.Time
	c         *Collector
}

const (
	statBefore = `cpu  1000 10 500 8000 300 5 20 0 100 0
cpu0 500 5 250 4000 150 2 10 0 50 0
cpu1 500 5 250 4000 150 3 10 0 50 0
intr 123456 0 9 0 0 0 0
ctxt 99
btime 1700000000
processes 4242
procs_running 3
procs_blocked 1
softirq 777 0 1 2
`
	memory = `MemTotal:       2113664212 kB
MemFree:        1900000000 kB
MemAvailable:   2000000000 kB
Buffers:             100 kB
Cached:              200 kB
SwapCached:            7 kB
SwapTotal:             0 kB
SwapFree:              0 kB
Dirty:                 4 kB
Writeback:             0 kB
SUnreclaim:           50 kB
HugePages_Total:       8
HugePages_Free:        3
Hugepagesize:       2048 kB
`
	noErrors = `RxErr 0
BadTLP 0
BadDLLP 0
Rollover 0
Timeout 0
NonFatalErr 0
CorrIntErr 0
HeaderOF 0
TOTAL_ERR_COR 0
`
)

func newNode(t *testing.T) *node {
	n := &node{t: t, proc: t.TempDir(), sys: t.TempDir(), now: time.Unix(1000, 0)}
	n.put(n.proc, "stat", statBefore)
	n.put(n.proc, "loadavg", "0.20 1.18 12.12 1/80 11206\n")
	n.put(n.proc, "meminfo", memory)
	n.put(n.proc, "pressure/cpu", "some avg10=1.50 avg60=0.32 avg300=1.10 total=532302210\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	n.put(n.proc, "pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=25.00 avg60=0.00 avg300=0.00 total=2000000\n")
	n.put(n.proc, "pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	n.put(n.proc, "pressure/irq", "full avg10=0.00 avg60=0.00 avg300=100.00 total=1\n")
	n.process(1, 0, "S systemd")
	n.c = New(Options{
		Proc: n.proc, Sys: n.sys, Now: func() time.Time { return n.now },
		Jobs: hostfs.NewJobs(hostfs.Host{Proc: n.proc, Sys: n.sys}),
	})
	return n
}

func (n *node) put(root, path, text string) {
	n.t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// process adds a process of threads, each "STATE name".
func (n *node) process(pid int, flags uint64, threads ...string) {
	n.t.Helper()
	for i, thread := range threads {
		state, name, _ := strings.Cut(thread, " ")
		n.put(n.proc, fmt.Sprintf("%d/task/%d/stat", pid, pid+i), fmt.Sprintf(
			"%d (%s) %s 1 1 1 0 -1 %d 100 0 0 0 5 6 0 0 20 0 %d 0 12345 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1\n",
			pid+i, name, state, flags, len(threads)))
	}
}

func (n *node) read() *heelerv1.HostSample {
	n.t.Helper()
	m, err := n.try()
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

func (n *node) try() (*heelerv1.HostSample, error) {
	n.t.Helper()
	var got *heelerv1.HostSample
	err := n.c.Collect(context.Background(), n.now, func(m heelerv1.Message) error {
		got = m.(*heelerv1.HostSample)
		got.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", Boot: "b"}
		_, err := heelerv1.Encode(got)
		return err
	})
	return got, err
}

func near(a, b heelerv1.Number) bool { return math.Abs(float64(a-b)) < 1e-9 }

func TestANodeInFull(t *testing.T) {
	n := newNode(t)
	first := n.read()
	if first.WindowNS != nil || first.CPURatio != nil || first.Absent["cpu_ratio"] != "first_reading" {
		t.Errorf("at first %+v", first)
	}
	n.now = n.now.Add(10 * time.Second)
	n.put(n.proc, "stat", strings.Replace(statBefore, "cpu  1000 10 500 8000 300 5 20 0 100 0",
		"cpu  1600 10 700 9000 400 5 40 80 400 0", 1))
	m := n.read()
	if *m.WindowNS != uint64(10*time.Second) || *m.CPUs != 2 || *m.ProcsRunning != 3 || *m.ProcsBlocked != 1 {
		t.Errorf("got %+v", m)
	}
	sum := heelerv1.Number(0)
	for kind, want := range map[string]heelerv1.Number{
		"user": 0.3, "nice": 0, "system": 0.1, "idle": 0.5, "iowait": 0.05, "irq": 0, "softirq": 0.01, "steal": 0.04, "guest": 0.15,
	} {
		if got, ok := m.CPURatio[kind]; !ok || !near(got, want) {
			t.Errorf("%s is %v, want %v", kind, got, want)
		}
		if kind != "guest" {
			sum += m.CPURatio[kind]
		}
	}
	if !near(sum, 1) {
		t.Errorf("all time is %v", sum)
	}
	if *m.Load1 != 0.2 || *m.Load5 != 1.18 || *m.Load15 != 12.12 {
		t.Errorf("load %v %v %v", *m.Load1, *m.Load5, *m.Load15)
	}
	for name, want := range map[string]uint64{
		"total": 2113664212 << 10, "available": 2000000000 << 10, "free": 1900000000 << 10, "buffers": 100 << 10, "cached": 200 << 10,
		"swap_total": 0, "swap_free": 0, "slab_unreclaimable": 50 << 10, "dirty": 4 << 10, "writeback": 0,
		"hugepages_total": 8 * 2048 << 10, "hugepages_free": 3 * 2048 << 10,
	} {
		if got, ok := m.MemoryBytes[name]; !ok || got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if len(m.Pressure) != 7 || *m.Pressure["cpu_some"].Avg10Ratio != 0.015 || *m.Pressure["memory_full"].Avg10Ratio != 0.25 ||
		*m.Pressure["memory_full"].TotalS != 2 || *m.Pressure["irq_full"].Avg300Ratio != 1 || *m.Pressure["cpu_full"].TotalS != 0 {
		t.Errorf("pressure %+v", m.Pressure)
	}
	if *m.ThreadsUninterruptible != 0 || m.Uninterruptible != nil {
		t.Errorf("uninterruptible %d, %v", *m.ThreadsUninterruptible, m.Uninterruptible)
	}
	if len(m.Absent) != 1 || m.Absent["aer"] != "not_present" {
		t.Errorf("absent %v", m.Absent)
	}
}

func TestTimeThatGoesBackwardsIsNotKnown(t *testing.T) {
	before, _ := parseStat([]byte("cpu 1000 0 0 1000 500 0 0 0 0 0\ncpu0 1\n"))
	after, _ := parseStat([]byte("cpu 1100 0 0 1100 490 0 0 0 0 0\ncpu0 1\n"))
	got := ratios(before, after)
	if _, ok := got["iowait"]; ok || !near(got["user"], 0.5) || !near(got["idle"], 0.5) {
		t.Errorf("got %v", got)
	}
	if got := ratios(after, after); got != nil {
		t.Errorf("no time passed: %v", got)
	}
	none, _ := parseStat([]byte("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 1\n"))
	if got := ratios(after, none); got != nil {
		t.Errorf("all went back: %v", got)
	}
}

func TestOldKernelsHaveFewerColumns(t *testing.T) {
	before, err := parseStat([]byte("cpu 1 0 0 1\ncpu0 1 0 0 1\n"))
	after, err2 := parseStat([]byte("cpu 2 0 0 2\ncpu0 2 0 0 2\n"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if got := ratios(before, after); len(got) != 4 || !near(got["user"], 0.5) {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsMissingIsAbsentAndStopsNothing(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"pressure", "loadavg", "stat"} {
		if err := os.RemoveAll(filepath.Join(n.proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.put(n.proc, "meminfo", "MemTotal: x kB\n")
	m, err := n.try()
	if err == nil || m == nil {
		t.Fatalf("got %+v, %v", m, err)
	}
	for name, why := range map[string]string{
		"cpu_ratio": "not_present", "load1": "not_present", "memory_bytes": "not_understood", "pressure_cpu": "not_present",
		"pressure_irq": "not_present", "procs_blocked": "not_present",
	} {
		if m.Absent[name] != why {
			t.Errorf("%s: %q", name, m.Absent[name])
		}
	}
	if m.CPURatio != nil || m.Load1 != nil || m.MemoryBytes != nil || m.Pressure != nil || m.ProcsBlocked != nil ||
		*m.ThreadsUninterruptible != 0 {
		t.Errorf("got %+v", m)
	}
}

func TestAKernelWithoutIrqPressure(t *testing.T) {
	n := newNode(t)
	_ = os.Remove(filepath.Join(n.proc, "pressure/irq"))
	if m := n.read(); len(m.Pressure) != 6 || m.Absent["pressure_irq"] != "not_present" {
		t.Errorf("got %+v, absent %v", m.Pressure, m.Absent)
	}
}

func TestBadLines(t *testing.T) {
	for _, text := range []string{"", "cpu\n", "cpu 1 2 x 4\ncpu0 1\n", "cpu 1 2 3 4\n", "cpu0 1 2 3 4\n", "cpu 1 2 3 4\ncpu0 1\nprocs_blocked -1\n"} {
		if s, err := parseStat([]byte(text)); err == nil || s != nil {
			t.Errorf("stat %q gives %+v", text, s)
		}
	}
	for _, text := range []string{"", "1 2", "a 1 2", "-1 0 0", "NaN 0 0", "1e300 0 0"} {
		if load, err := parseLoad([]byte(text)); err == nil || load != [3]heelerv1.Number{} {
			t.Errorf("load %q gives %v", text, load)
		}
	}
	for _, text := range []string{"", "some avg10=x", "some avg10=-1", "some avg10=101", "most avg10=1", "some total=NaN", "some total=Inf"} {
		if lines, err := parsePressure([]byte(text)); err == nil || lines != nil {
			t.Errorf("pressure %q gives %v", text, lines)
		}
	}
	for _, text := range []string{"", "MemFree: 1 kB\n", "MemTotal: -1 kB\n", "MemTotal: 18446744073709551615 kB\n"} {
		if got, err := parseMemory([]byte(text)); err == nil || got != nil {
			t.Errorf("memory %q gives %v", text, got)
		}
	}
	for _, text := range []string{"", "RxErr 0\n", "RxErr\nTOTAL_ERR_COR 0\n", "RxErr x\nTOTAL_ERR_COR 0\n"} {
		if total, kinds, err := parseAer([]byte(text)); err == nil || total != 0 || kinds != nil {
			t.Errorf("AER %q gives %d, %v", text, total, kinds)
		}
	}
	for _, text := range []string{"", "1 (a", "1 a) S", "1 (a)", "1 (a) ", "1 (a) SS 1", "1 (a) S 1 1 1 0 -1 x 0 0 0 0 5 6 0 0 20 0 1", "1 (a) S 1 2 3"} {
		if got, err := parseThread([]byte(text)); err == nil || got != (thread{}) {
			t.Errorf("thread %q gives %+v", text, got)
		}
	}
}

func FuzzHostFiles(f *testing.F) {
	for _, s := range []string{
		statBefore, memory, noErrors, "0.20 0.18 0.12 1/80 11206\n", "some avg10=0.12 avg60=0.32 avg300=1.10 total=532302210\n",
		"12 (a) b) D 1 1 1 0 -1 2129984 100 0 0 0 5 6 0 0 20 0 3 0 1 0\n", "dev_cor_errs_bit[12] 7\nTOTAL_ERR_COR 1\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStat(text); err == nil {
			for _, r := range ratios(&stat{columns: s.columns}, s) {
				if !(r >= 0 && r <= 1) {
					t.Errorf("ratio %v of %q", r, text)
				}
			}
		}
		if lines, err := parsePressure(text); err == nil {
			for _, l := range lines {
				for _, v := range []*heelerv1.Number{l.Avg10Ratio, l.Avg60Ratio, l.Avg300Ratio} {
					if v != nil && !(*v >= 0 && *v <= 1) {
						t.Errorf("ratio %v of %q", *v, text)
					}
				}
			}
		}
		if load, err := parseLoad(text); err == nil && !(load[0] >= 0 && load[1] >= 0 && load[2] >= 0) {
			t.Errorf("load %v of %q", load, text)
		}
		if got, err := parseMemory(text); (err == nil) != (got != nil) {
			t.Errorf("memory %v, %v", got, err)
		}
		if total, kinds, err := parseAer(text); err != nil && (total != 0 || kinds != nil) {
			t.Errorf("half a result: %d, %v", total, kinds)
		}
		if got, err := parseThread(text); err != nil && got != (thread{}) {
			t.Errorf("half a result: %+v", got)
		}
	})
}
