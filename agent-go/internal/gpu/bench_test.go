//go:build cgo

package gpu

import (
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/nvml"
)

// node is a scenario with eight busy GPUs and a process on each.
func node(model string) string {
	lines := []string{"model " + model, "all busy"}
	for i := range 8 {
		lines = append(lines, string(rune('0'+i))+" process 7"+string(rune('0'+i))+" 51539607552")
	}
	return strings.Join(lines, "\n")
}

// BenchmarkWindow reads eight GPUs ten times and publishes once: divided by ten, it is the CPU time a second.
func BenchmarkWindow(b *testing.B) {
	for _, model := range []string{"NVIDIA H100 80GB HBM3", "NVIDIA B200"} {
		b.Run(strings.Fields(model)[1], func(b *testing.B) {
			fakenvml.Follow(b, node(model))
			r := newRig(b, nvml.Open(fakenvml.Build(b)), func(o *Options) { o.Window, o.Patience = 10*second, time.Second })
			r.ticks(30)
			b.ReportAllocs()
			for b.Loop() {
				r.samples = nil
				r.ticks(10)
			}
		})
	}
}
