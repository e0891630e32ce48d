package dcgm

import (
	"runtime"
	"testing"
	"time"
)

var gpuA = instance{"GPU-a", whole}

func sm(v float64) map[string]float64 { return map[string]float64{"sm_active_ratio": v} }

func TestTheMeanIsOverTheRowsSinceTheLastAsking(t *testing.T) {
	s, now := newStore(time.Second), time.Unix(100, 0)
	for i, v := range []float64{0.25, 0.5, 0.75} {
		s.add(gpuA, sm(v), now.Add(time.Duration(i)*time.Second))
	}
	if got := s.take(gpuA, now.Add(2500*time.Millisecond)); got["sm_active_ratio"] != 0.5 {
		t.Errorf("got %v", got)
	}
	if got := s.take(gpuA, now.Add(2600*time.Millisecond)); len(got) != 0 {
		t.Errorf("taken twice: %v", got)
	}
	s.add(gpuA, sm(1), now.Add(3*time.Second))
	if got := s.take(gpuA, now.Add(3*time.Second)); got["sm_active_ratio"] != 1 {
		t.Errorf("got %v", got)
	}
}

func TestOldValuesAreNotServed(t *testing.T) {
	s, now := newStore(time.Second), time.Unix(100, 0)
	for i := range 10 {
		s.add(gpuA, sm(0.5), now.Add(time.Duration(i)*time.Second))
	}
	if got := s.take(gpuA, now.Add(11001*time.Millisecond)); got != nil {
		t.Errorf("two intervals after the last row: %v", got)
	}
	s.add(gpuA, sm(0.25), now.Add(20*time.Second))
	if got := s.take(gpuA, now.Add(20*time.Second)); got["sm_active_ratio"] != 0.25 {
		t.Errorf("what is old was averaged into %v", got)
	}
}

func TestOfABurstOnlyTheLastCounts(t *testing.T) {
	s, now := newStore(time.Second), time.Unix(100, 0)
	s.add(gpuA, sm(0), now)
	for i := range 30 {
		s.add(gpuA, sm(0.9), now.Add(30*time.Second+time.Duration(i)*time.Millisecond))
	}
	s.add(gpuA, sm(0.5), now.Add(30*time.Second+50*time.Millisecond))
	if got := s.take(gpuA, now.Add(31*time.Second)); got["sm_active_ratio"] != 0.25 { // the first and the last
		t.Errorf("got %v", got)
	}
}

func TestWhatIsMissingInARowIsLeftOutOfTheMean(t *testing.T) {
	fields := chosen(profiling, []int{1002, 1005})
	s, now := newStore(time.Second), time.Unix(100, 0)
	for i, cells := range [][]Cell{
		{{Value: 0.5}, {Kind: Blank}}, {{Kind: NotSupported}, {Value: 0.25}}, {{Value: 7e13}, {Kind: NotANumber}},
	} {
		values, _ := plausible(fields, cells)
		s.add(gpuA, values, now.Add(time.Duration(i)*time.Second))
	}
	got := s.take(gpuA, now.Add(2*time.Second))
	if got["sm_active_ratio"] != 0.5 || got["dram_active_ratio"] != 0.25 || len(got) != 2 {
		t.Errorf("got %v", got)
	}
	if _, rejected := plausible(fields, []Cell{{Value: 1.001}, {Value: -0.5}}); rejected != 2 {
		t.Errorf("%d rejected", rejected)
	}
}

// TestTenThousandCyclesDoNotGrow goes through parser and store as eight GPUs do, one row in twenty being damaged.
func TestTenThousandCyclesDoNotGrow(t *testing.T) {
	s, now := newStore(time.Second), time.Unix(100, 0)
	fields := chosen(profiling, []int{1002, 1005})
	cycle := func(i int) {
		p := Parser{Fields: 2}
		_, _, _ = p.Line(left("#Entity", "SMACT", "DRAMA"))
		for gpu := range uint64(8) {
			line := left(name("GPU", gpu), "0.500", "0.250")
			if (i+int(gpu))%20 == 0 {
				line = line[:20]
			}
			verdict, row, _ := p.Line(line)
			if verdict == IsRow {
				values, _ := plausible(fields, row.Cells)
				s.add(instance{name("GPU", gpu), whole}, values, now)
			}
			if i%10 == 0 {
				s.take(instance{name("GPU", gpu), whole}, now)
			}
		}
		now = now.Add(time.Second)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i := range 1000 {
		cycle(i)
	}
	before := heap()
	for i := range 10000 {
		cycle(i)
	}
	if after := heap(); after > before+before/20+64<<10 {
		t.Errorf("from %d to %d bytes", before, after)
	}
}
