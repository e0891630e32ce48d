//go:build cgo

package gpu

import (
	"fmt"
	"strings"
	"testing"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

func TestAProcessStandsOnEachGPUThatItUses(t *testing.T) {
	r, _ := fakeRig(t, `gpus 2
0 process 77 100
1 process 77 200
1 process 90 na
1 mps_process 91 50
1 mps_process 77 200
1 graphics_process 92 1`)
	s := r.window(t)
	got := map[string]bool{}
	for _, p := range s.Procs {
		memory := "?"
		if p.MemoryBytes != nil {
			memory = fmt.Sprint(*p.MemoryBytes)
		}
		got[fmt.Sprintf("%d:%d:%s", p.GPU, p.PID, memory)] = true
	}
	for _, want := range []string{"0:77:100", "1:77:200", "1:90:?", "1:91:50"} {
		if !got[want] {
			t.Errorf("no %s", want)
		}
	}
	if len(s.Procs) != 4 {
		t.Errorf("processes %v", got)
	}
}

func TestImpossibleProcessesAreDroppedAndCounted(t *testing.T) {
	r, _ := fakeRig(t, "gpus 1\n0 process 4294967295 5\n0 process 0 5\n0 process 32769 5\n0 process 32768 7\n0 process 12 9000000000000000")
	s := r.window(t)
	if len(s.Procs) != 2 || s.Procs[0].PID != 12 || s.Procs[1].PID != 32768 {
		t.Fatalf("processes %+v", s.Procs)
	}
	if s.Procs[0].MemoryBytes != nil || *s.Procs[1].MemoryBytes != 7 {
		t.Errorf("memory %+v", s.Procs)
	}
	if n := r.Counts()["rejected"]; n != 4 {
		t.Errorf("%d rejected", n)
	}
}

func TestThousandsOfProcessesAreListedInPart(t *testing.T) {
	var text strings.Builder
	text.WriteString("gpus 2\n1 process 7 1\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "0 process %d %d\n", i+10, i+1)
	}
	r, _ := fakeRig(t, text.String())
	s := r.window(t)
	if len(s.Procs) != mostProcesses+1 {
		t.Errorf("%d processes", len(s.Procs))
	}
	if least := *s.Procs[0].MemoryBytes; least != 3000-mostProcesses+1 {
		t.Errorf("those that hold most: from %d", least)
	}
	if n := r.Counts()["unlisted_processes"]; n != 3000-mostProcesses {
		t.Errorf("%d are not listed", n)
	}
	if data, err := heelerv1.Encode(s); err != nil || len(data) > 64<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestAListThatMayNotBeReadIsUnknownNotEmpty(t *testing.T) {
	procs, s := (&scripted{procs: []nvml.Process{{PID: 5}}}).Processes()
	var l processList
	l.add(procs, nvml.NoPermission)
	if l.known {
		t.Error("known")
	}
	l.add(procs, s)
	if !l.known || len(l.all) != 1 {
		t.Errorf("got %+v", l)
	}
}
