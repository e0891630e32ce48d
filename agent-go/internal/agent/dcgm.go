package agent

import (
	"sync/atomic"

	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/dcgm"
	"heeler.dev/agent-go/internal/gpu"
)

// dcgmParts are the two sources that run dcgmi. It implements [gpu.Profiles] for the GPUs' collector, which lives on
// when a reload makes the sources anew.
type dcgmParts struct {
	tool     dcgm.Tool
	profiler atomic.Pointer[dcgm.Profiler]
	switches *dcgm.Switches
}

// renew makes them anew; none of them may run. A dcgmi that could not be ended is remembered.
func (d *dcgmParts) renew(c *config.Config, gpus *gpu.Collector) {
	d.tool.Command, d.tool.Host = c.DCGM.Command, c.DCGM.Host
	d.profiler.Store(dcgm.NewProfiler(&d.tool, gpus, c.DCGM.Fields, c.DCGM.Interval.Duration))
	d.switches = dcgm.NewSwitches(&d.tool, c.DCGM.SwitchInterval.Duration)
}

// Window implements [gpu.Profiles].
func (d *dcgmParts) Window(uuid string, gi *int64) map[string]float64 {
	if p := d.profiler.Load(); p != nil {
		return p.Window(uuid, gi)
	}
	return nil
}
