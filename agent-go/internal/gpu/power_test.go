package gpu

import (
	"testing"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// powered is a GPU with these answers to the two fields of power, and to the older call.
func powered(arch string, average, instant nvml.Field, call func() (uint64, nvml.Status)) (*scripted, *[2]nvml.Field) {
	answers := &[2]nvml.Field{average, instant}
	return &scripted{uuid: "GPU-a", total: 10, arch: arch, power: call, fields: func(f *nvml.Field) {
		switch f.ID {
		case nvml.FieldPowerAverage:
			f.Value, f.Status = answers[0].Value, answers[0].Status
		case nvml.FieldPowerInstant:
			f.Value, f.Status = answers[1].Value, answers[1].Status
		}
	}}, answers
}

func milliwatts(v uint64) nvml.Field   { return nvml.Field{Value: v} }
func failing(s nvml.Status) nvml.Field { return nvml.Field{Status: s} }
func kind(s *heelerv1.GpuSample) string {
	if s.GPU.PowerKind == nil || s.GPU.PowerKind[0] == nil {
		return ""
	}
	return *s.GPU.PowerKind[0]
}

func TestPowerSaysOfWhichKindItIs(t *testing.T) {
	for name, c := range map[string]struct {
		arch             string
		average, instant nvml.Field
		want             float64
		kind             string
	}{
		"both":            {"hopper", milliwatts(400000), milliwatts(500000), 400, "average"},
		"instant only":    {"volta", failing(none), milliwatts(500000), 500, "instant"},
		"average is zero": {"ampere", milliwatts(0), milliwatts(500000), 500, "instant"},
		"neither":         {"volta", failing(none), failing(none), 300, "instant"},
		"neither, newer":  {"ada", failing(none), failing(nvml.InvalidArgument), 300, "average"},
		"nobody knows":    {"", failing(none), failing(none), 300, ""},
	} {
		d, _ := powered(c.arch, c.average, c.instant, each(300000))
		s := newRig(t, &script{gpus: []*scripted{d}}).window(t)
		if got, ok := value(t, s.Mean, "power_w", 0); !ok || got != c.want || kind(s) != c.kind {
			t.Errorf("%s: %v W %q, %v", name, got, kind(s), ok)
		}
	}
}

func TestPowerStaysOfOneKind(t *testing.T) {
	d, answers := powered("hopper", failing(nvml.Unknown), milliwatts(500000), each(300000))
	r := newRig(t, &script{gpus: []*scripted{d}})
	s := r.window(t)
	if v, ok := value(t, s.Mean, "power_w", 0); ok || kind(s) != "" || s.Absent["power_w"] != "error_999" {
		t.Errorf("an error that passes decided: %v %q", v, kind(s))
	}
	if v, _ := value(t, s.Mean, "power_instant_w", 0); v != 500 {
		t.Errorf("instant %v", v)
	}
	answers[0] = milliwatts(400000)
	if s = r.window(t); kind(s) != "average" {
		t.Fatalf("kind %q", kind(s))
	}
	answers[0] = failing(nvml.Unknown)
	s = r.window(t)
	if v, ok := value(t, s.Mean, "power_w", 0); ok {
		t.Errorf("%v W of another kind", v)
	}
	if err := r.Release(second); err != nil { // all handles are new
		t.Fatal(err)
	}
	answers[0] = failing(none)
	s = r.window(t)
	if v, ok := value(t, s.Mean, "power_w", 0); !ok || v != 300 || kind(s) != "average" {
		t.Errorf("the older call gives the same kind on this board: %v, %v, %q", v, ok, kind(s))
	}
}

func TestTheOlderCallGivesAnotherKindOnOtherBoards(t *testing.T) {
	for _, c := range []struct{ arch, model, want string }{
		{"ampere", "NVIDIA A100-SXM4-80GB", "instant"}, {"ampere", "NVIDIA A30", "instant"},
		{"ampere", "NVIDIA A40", "average"}, {"turing", "Tesla T4", "instant"}, {"rubin", "", "average"}, {"", "NVIDIA A100", ""},
	} {
		if got := kindOfCall(&heelerv1.Gpu{Architecture: c.arch, Model: c.model}); got != c.want {
			t.Errorf("%s: %q", c.model, got)
		}
	}
}
