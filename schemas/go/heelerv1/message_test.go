package heelerv1

import (
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

func header() Header {
	return Header{V: 1, Cluster: "c", Node: "gpu.node 1", TS: 10, Boot: "b", Seq: 3}
}

func sample() *GpuSample {
	return &GpuSample{
		Header: header(), WindowNS: 10, Reads: 1,
		GPU:  GpuColumns{UUID: []string{"GPU-a", "GPU-b"}},
		Mean: map[string]Column{"power_w": {FloatValue(87.5), {}}},
		Last: map[string]Column{"violation_power_ns": {UintValue(math.MaxUint64), {}}},
	}
}

func TestSubjectsEscapeWhatComesFromOutside(t *testing.T) {
	got, err := sample().Subject()
	if want := "heeler.v1.c.gpu.sample.gpu=2Enode=201"; err != nil || got != want {
		t.Errorf("subject %q, %v; want %q", got, err, want)
	}
}

func TestTokensComeBack(t *testing.T) {
	for _, name := range []string{"gn001", "a.b", "über", "=", "a b*>"} {
		token, err := Token(name)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Untoken(token); err != nil || back != name {
			t.Errorf("%q became %q became %q, %v", name, token, back, err)
		}
	}
}

func TestHostileNamesAreRefused(t *testing.T) {
	for _, name := range []string{"", "a\nb", "a\x00", "\x7f", "\xff", strings.Repeat("x", 201), strings.Repeat(".", 67)} {
		if token, err := Token(name); err == nil {
			t.Errorf("%q became %q", name, token)
		}
	}
}

func TestForgedTokensAreRefused(t *testing.T) {
	for _, token := range []string{"", "=", "=2", "=41", "=2e", "a.b", "=zz"} {
		if name, err := Untoken(token); err == nil {
			t.Errorf("%q became %q", token, name)
		}
	}
}

func TestTheLargestCounterSurvives(t *testing.T) {
	data, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	back := &GpuSample{}
	if err := Decode(data, back); err != nil {
		t.Fatal(err)
	}
	if got, ok := back.Last["violation_power_ns"][0].Uint(); !ok || got != math.MaxUint64 {
		t.Errorf("got %d, %v", got, ok)
	}
	if back.Last["violation_power_ns"][1].Known() {
		t.Error("null came back as a value")
	}
}

func TestNotANumberBecomesNotKnown(t *testing.T) {
	if FloatValue(math.NaN()).Known() || FloatValue(math.Inf(1)).Known() {
		t.Error("NaN or infinity is a value")
	}
}

func TestAColumnOfTheWrongLengthIsRefused(t *testing.T) {
	m := sample()
	m.Mean["power_w"] = Column{FloatValue(1)}
	if _, err := Encode(m); err == nil {
		t.Error("encoded one power for two GPUs")
	}
}

func TestNullMeansAbsentAtEveryDepth(t *testing.T) {
	raw := msgp.AppendMapHeader(nil, 7)
	for key, value := range map[string]any{"v": 1, "cluster": "c", "node": "n", "ts": 1, "boot": "b", "seq": 1} {
		raw, _ = msgp.AppendIntf(msgp.AppendString(raw, key), value)
	}
	raw = msgp.AppendMapHeader(msgp.AppendString(raw, "collectors"), 1)
	raw = msgp.AppendMapHeader(msgp.AppendString(raw, "kmsg"), 2)
	raw = msgp.AppendNil(msgp.AppendString(raw, "why"))
	raw = msgp.AppendString(msgp.AppendString(raw, "state"), "brand new state")
	m := &AgentStatus{}
	if err := Decode(raw, m); err != nil {
		t.Fatal(err)
	}
	if got := m.Collectors["kmsg"]; got.Why != "" || got.State != CollectorUnknown {
		t.Errorf("got %+v", got)
	}
}

func FuzzDecode(f *testing.F) {
	data, _ := Encode(sample())
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, name := range Types() {
			m := New(name)
			if Decode(payload, m) != nil {
				continue
			}
			if _, err := m.MarshalMsg(nil); err != nil {
				t.Errorf("%s: decoded but cannot be encoded: %v", name, err)
			}
		}
	})
}

func BenchmarkEncodeGpuSample(b *testing.B) {
	m := sample()
	for b.Loop() {
		if _, err := Encode(m); err != nil {
			b.Fatal(err)
		}
	}
}
