//go:build cgo

package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

func (s *site) xids(code uint64) []*heelerv1.KernelEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*heelerv1.KernelEvent
	for _, m := range s.got {
		if e, ok := m.(*heelerv1.KernelEvent); ok && e.Kind == heelerv1.KindXid && *e.Code == code {
			found = append(found, e)
		}
	}
	return found
}

func TestOneFaultInTheLogAndInNVMLIsOneEvent(t *testing.T) {
	s := newSite(t)
	s.run()
	inventory := wait(s, "an inventory", func(m *heelerv1.Inventory) bool { return len(m.GPUs) == 8 })
	wait(s, "all GPUs are heard", func(m *heelerv1.AgentStatus) bool { return m.Collectors["nvml_events"].Counts["gpus"] == 8 })
	event := int(time.Now().UnixMilli()) // the library tells an event once in a process
	nvml := func(gpu, code int) {
		event++
		s.scenario.Set(fmt.Sprintf("all busy\nevent %d %d xid %d", event, gpu, code))
	}
	kernel := func(gpu, code int) {
		s.log(fmt.Sprintf("4,%d,%d,-;NVRM: Xid (PCI:%s): %d, pid=1, name=x, text", code, code, inventory.GPUs[gpu].PCI, code))
	}
	nvml(1, 48)
	time.Sleep(300 * time.Millisecond)
	kernel(1, 48)
	both := wait(s, "the XID that NVML saw first", func(m *heelerv1.KernelEvent) bool { return m.Code != nil && *m.Code == 48 })
	if !slices.Equal(both.Witness, []string{"kmsg", "nvml"}) || both.Raw == "" || both.UUID != inventory.GPUs[1].UUID {
		t.Errorf("got %+v", both)
	}
	kernel(2, 63)
	wait(s, "the XID that the log told first", func(m *heelerv1.KernelEvent) bool { return m.Code != nil && *m.Code == 63 })
	nvml(2, 63)
	time.Sleep(100 * time.Millisecond) // the library looks at its scenario every few milliseconds
	nvml(3, 95)
	alone := wait(s, "the XID that only NVML saw", func(m *heelerv1.KernelEvent) bool { return m.Code != nil && *m.Code == 95 })
	if !slices.Equal(alone.Witness, []string{"nvml"}) || alone.UUID != inventory.GPUs[3].UUID || alone.KmsgSeq != nil {
		t.Errorf("got %+v", alone)
	}
	for _, code := range []uint64{48, 63, 95} {
		if n := len(s.xids(code)); n != 1 {
			t.Errorf("%d events of one XID %d", n, code)
		}
	}
	wait(s, "the counts", func(m *heelerv1.AgentStatus) bool {
		c := m.Collectors["nvml_events"].Counts
		return c["heard"] == 3 && c["together"] == 1 && c["late"] == 1 && c["alone"] == 1
	})
}
