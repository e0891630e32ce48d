package dcgm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

func fabric() world {
	return world{
		"gpus": []any{map[string]any{"id": 0, "uuid": "GPU-a"}}, "switches": []int{0, 3}, "links": 3,
		"values": world{
			"Switch 0": world{"858": 45, "705": "61", "866": 0, "867": 196, "868": 0, "701": 2147483634},
			"Switch 3": world{"858": 47, "705": "N/A"},
			"LINK 3":   world{"870": 2}, "LINK 259": world{"870": 2, "787": 12}, "LINK 515": world{"870": 0},
			"LINK 196611": world{"870": 2}, "LINK 196867": world{"870": 2}, "LINK 197123": world{"870": 2},
		},
	}
}

func sample(t *testing.T, r *running) *heelerv1.SwitchSample {
	t.Helper()
	select {
	case m := <-r.got:
		return m.(*heelerv1.SwitchSample)
	case err := <-r.done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(patience):
		t.Fatal("no sample")
	}
	return nil
}

func TestSwitchesAndTheLinksThatAreWorthARow(t *testing.T) {
	f, tool := newFake(t, fabric())
	s := NewSwitches(tool, 300*time.Millisecond)
	r := run(t, s.run)
	var m *heelerv1.SwitchSample
	for m = sample(t, r); len(m.Switches) < 2 || len(m.Links) < 2; m = sample(t, r) {
	}
	first, second := m.Switches[0], m.Switches[1]
	if first.Switch != 0 || second.Switch != 3 || first.PCI != "0000:c4:00" {
		t.Errorf("switches %+v", m.Switches)
	}
	if v, _ := first.Values["temp_c"].Float(); v != 45 {
		t.Errorf("values %+v", first.Values)
	}
	if _, ok := first.Values["voltage_mv"]; ok || second.Values["power_vdd_w"].Known() {
		t.Errorf("what was not read became %+v %+v", first.Values, second.Values)
	}
	if len(m.Links) != 2 || m.Links[0].Link != 1 || m.Links[1].Link != 2 || m.Links[0].Switch != 0 {
		t.Errorf("links %+v", m.Links)
	}
	if v, _ := m.Links[0].Values["crc_errors"].Uint(); v != 12 {
		t.Errorf("links %+v", m.Links)
	}
	m.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", TS: m.TS, Boot: "b", Seq: 1}
	if _, err := heelerv1.Encode(m); err != nil {
		t.Error(err)
	}
	if took := r.stop(); took > 3*time.Second {
		t.Errorf("the end took %s", took)
	}
	if calls := f.calls("dmon -i nvswitch:0,nvswitch:3 -e 701,"); len(calls) != 1 {
		t.Errorf("called: %v", f.calls(""))
	}
}

func TestSwitchesAreReadWhereDcgmiKnowsNoLinks(t *testing.T) {
	w := fabric()
	delete(w, "links")
	_, tool := newFake(t, w)
	r := run(t, NewSwitches(tool, 300*time.Millisecond).run)
	m := sample(t, r)
	for m.Absent["links"] == "" {
		m = sample(t, r)
	}
	if len(m.Switches) != 2 || m.Links != nil {
		t.Errorf("got %+v", m)
	}
}

func TestNoSampleRepeatsWhatWasSent(t *testing.T) {
	w := fabric()
	w["rounds"], w["then"] = 2, "hang"
	_, tool := newFake(t, w)
	r := run(t, NewSwitches(tool, 300*time.Millisecond).run)
	if err := r.ends(); !errors.Is(err, collector.ErrHung) {
		t.Errorf("it ended with %v", err)
	}
	close(r.got)
	times := map[switchLink]int{}
	for m := range r.got {
		for _, one := range m.(*heelerv1.SwitchSample).Switches {
			times[switchLink{one.Switch, noLink}]++
		}
		for _, one := range m.(*heelerv1.SwitchSample).Links {
			times[switchLink{one.Switch, one.Link}]++
		}
	}
	for of, n := range times {
		if n > 2 {
			t.Errorf("%v was sent %d times after two rounds", of, n)
		}
	}
	if len(times) == 0 {
		t.Error("nothing was sent")
	}
}

func TestProfilingRefusedLeavesTheSwitchesAlone(t *testing.T) {
	w := fabric()
	w["refuse"] = "In use by another client"
	_, tool := newFake(t, w)
	switches := run(t, NewSwitches(tool, 300*time.Millisecond).run)
	p := NewProfiler(tool, &gpus{lacks: []string{"GPU-a"}}, nil, every)
	if err := run(t, p.run).ends(); err == nil {
		t.Error("profiling is not refused")
	}
	sample(t, switches)
	switches.stop()
}

func TestANodeWithoutSwitchesIsNotAskedAllTheTime(t *testing.T) {
	f, tool := newFake(t, a100s())
	s := NewSwitches(tool, time.Second)
	for range 5 {
		if err := s.Run(t.Context(), func() {}, nil); !errors.Is(err, collector.ErrAbsent) ||
			!strings.Contains(err.Error(), "no NVSwitch") {
			t.Errorf("got %v", err)
		}
	}
	if n := len(f.calls("discovery")); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
