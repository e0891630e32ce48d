package kmsg

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// events runs lines through the parser and the folder.
func events(lines ...string) []*heelerv1.KernelEvent {
	s := NewStream(true)
	var out []*heelerv1.KernelEvent
	for _, line := range lines {
		out = append(out, s.Line(line)...)
	}
	return append(out, s.Flush()...)
}

func TestSXidContinuationLinesFold(t *testing.T) {
	got := events(
		"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
		"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
		"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 12028, Data {0x00140004, 0x00100000}",
		"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 22013, Fatal, Link 08 Minion Link DLREQ interrupt",
	)
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	e := got[0]
	want := map[string]any{
		"switch": uint64(2), "fatal": false, "link": uint64(32), "severity": uint64(0), "engine_instance": uint64(32),
		"sub_engine_instance": uint64(0), "registers": []any{uint64(0x140004), uint64(0x100000)},
	}
	if e.Kind != heelerv1.KindSxid || *e.Code != 12028 || e.PCI != "0000:c4:00" || !reflect.DeepEqual(e.Detail, want) {
		t.Errorf("got %+v", e)
	}
	if got[1].Detail["fatal"] != true {
		t.Errorf("got %+v", got[1])
	}
}

func TestALostGPUInThreeLinesIsOneEvent(t *testing.T) {
	got := events(
		"NVRM: The NVIDIA GPU 0000:b3:00.0",
		"usb 1-1: something between",
		"NVRM: (PCI ID: 10de:0000) installed in this system has",
		"NVRM: fallen off the bus and is not responding to commands.",
	)
	if len(got) != 1 || got[0].Kind != heelerv1.KindGpuLost || got[0].PCI != "0000:b3:00" {
		t.Errorf("got %+v", got)
	}
}

func TestAGPUThatIsOnlyUnsupportedIsNotLost(t *testing.T) {
	got := events(
		"NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:1234)",
		"NVRM: installed in this system is not supported by this driver.",
	)
	if len(got) != 0 {
		t.Errorf("got %+v", got[0])
	}
}

func TestOOMKnowsItsCgroup(t *testing.T) {
	got := events(
		"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/slurm/uid_1/job_77,task_memcg=/slurm/uid_1/job_77/step_0,task=python,pid=4242,uid=1",
		"Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB",
	)
	if len(got) != 1 || *got[0].PID != 4242 || got[0].Comm != "python" ||
		got[0].Detail["cgroup"] != "/slurm/uid_1/job_77/step_0" || got[0].Detail["memory_cgroup"] != true {
		t.Errorf("got %+v", got)
	}
	alone := events("Out of memory: Killed process 9 (a b) total-vm:1kB")
	if len(alone) != 1 || *alone[0].PID != 9 || alone[0].Comm != "a b" {
		t.Errorf("got %+v", alone)
	}
}

func TestTheUUIDComesFromTheDriversOwnLine(t *testing.T) {
	got := events(
		"NVRM: GPU at PCI:0000:3b:00: GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000",
		xid79,
	)
	if len(got) != 2 || got[1].UUID != "GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000" {
		t.Errorf("got %+v", got)
	}
}

func TestAFloodIsSummedUpAndNothingIsLost(t *testing.T) {
	g := newGate(10 * time.Second)
	start := time.Unix(1000, 0)
	const lines, texts = 80_000, 29
	var passed, summed, published uint64
	for i := range lines {
		at := start.Add(time.Duration(i) * 600 * time.Second / lines)
		for _, e := range g.due(at) {
			summed += e.count
			published++
		}
		f := Fact{Kind: heelerv1.KindXid, Code: u(95), PCI: at3b, Text: fmt.Sprint("text ", i%texts)}
		if g.admit(&event{fact: f, at: at, count: 1, ordinal: uint64(i), before: position{Ordinal: uint64(i)}}) {
			passed++
			published++
		}
	}
	for _, e := range g.flush() {
		summed += e.count
		published++
	}
	if passed+summed != lines {
		t.Errorf("%d lines became %d and %d", lines, passed, summed)
	}
	if limit := uint64(texts * (3 + 61)); published > limit {
		t.Errorf("%d events for a flood, more than %d", published, limit)
	}
	if passed != 3*texts {
		t.Errorf("%d passed at once", passed)
	}
}

func xidOf(code uint64, pci, text string) *event {
	f := Fact{Kind: heelerv1.KindXid, Code: &code, PCI: pci, Text: text}
	return &event{fact: f, at: time.Unix(1000, 0), count: 1}
}

func TestTooManyDifferentLinesShareASummary(t *testing.T) {
	g := newGate(time.Second)
	passed := 0
	for i := range 1000 {
		if g.admit(xidOf(45, at3b, fmt.Sprint("Ch ", i))) {
			passed++
		}
	}
	if !g.admit(xidOf(79, at3b, "GPU has fallen off the bus.")) {
		t.Error("a flood of another code holds an XID 79 back")
	}
	got := g.due(time.Unix(1001, 0))
	if passed != g.texts || len(got) != 1 {
		t.Fatalf("%d passed, %d summaries", passed, len(got))
	}
	if f := got[0].fact; *f.Code != 45 || f.PCI != at3b || got[0].count != uint64(1000-passed) || f.Detail["mixed"] != true {
		t.Errorf("got %+v", got[0])
	}
	if g.due(time.Unix(1003, 0)); len(g.seen) != 0 || len(g.room) != 0 {
		t.Errorf("%d lines and %d groups are kept", len(g.seen), len(g.room))
	}
}

func TestTooManyGroupsShareASummary(t *testing.T) {
	g := newGate(time.Second)
	passed := 0
	for i := range uint64(1000) {
		if g.admit(xidOf(i, at3b, "x")) {
			passed++
		}
	}
	got := g.due(time.Unix(1001, 0))
	if passed != g.groups || len(got) != 1 || got[0].fact.Kind != heelerv1.KindFlood || got[0].fact.Detail["of"] != "xid" {
		t.Errorf("%d passed, summaries %+v", passed, got)
	}
}

func TestFewEqualLinesAreEventsOfTheirOwn(t *testing.T) {
	g := newGate(10 * time.Second)
	f := Fact{Kind: heelerv1.KindXid, Code: u(31), PCI: at3b, Text: "same"}
	for range 2 {
		if !g.admit(&event{fact: f, at: time.Unix(1000, 0), count: 1}) {
			t.Error("held back")
		}
	}
}
