package kmsg

import (
	"reflect"
	"strings"
	"testing"

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

func TestEventsOfASavedLogKeepTheOrderOfItsLines(t *testing.T) {
	got := events(
		"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
		xid79,
		"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/x,task=a,pid=9,uid=0",
		"NVRM: Xid (PCI:0000:3b:00): 48, DBE",
		"Out of memory: Killed process 9 (a) total-vm:1kB",
		"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 12028, Data {0x00140004, 0x00100000}",
	)
	var kinds []string
	for i, m := range got {
		kinds = append(kinds, string(m.Kind))
		if i > 0 && m.Seq <= got[i-1].Seq {
			t.Errorf("seq %d after %d", m.Seq, got[i-1].Seq)
		}
	}
	if strings.Join(kinds, " ") != "sxid xid oom xid" || got[0].Detail["registers"] == nil || got[2].Comm != "a" {
		t.Errorf("got %v", kinds)
	}
}
