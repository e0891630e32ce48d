//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// profiler keeps two samples and overwrites the older one.
type profiler struct {
	lib     *library
	d       nvml.Device
	samples [2]nvml.GpmSample
	newest  int
	taken   int
}

// Profiler implements [Device].
func (d *device) Profiler() (Profiler, Status) {
	for _, symbol := range []string{
		"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
	} {
		if d.lacks(symbol) {
			return nil, FunctionNotFound
		}
	}
	support, ret := d.d.GpmQueryDeviceSupport()
	if ret != nvml.SUCCESS {
		return nil, Status(ret)
	}
	if support.IsSupportedDevice == 0 {
		return nil, NotSupported
	}
	p := &profiler{lib: d.lib, d: d.d}
	for i := range p.samples {
		if p.samples[i], ret = d.lib.api.GpmSampleAlloc(); ret != nvml.SUCCESS {
			p.free(i)
			return nil, Status(ret)
		}
	}
	return p, OK
}

func (p *profiler) Sample() Status {
	next := 1 - p.newest
	ret := p.d.GpmSampleGet(p.samples[next])
	if ret != nvml.SUCCESS {
		p.taken = 0
		return Status(ret)
	}
	p.newest = next
	p.taken++
	return OK
}

func (p *profiler) Read(metrics []MetricValue) Status {
	if p.taken < 2 {
		return Unread
	}
	request := &nvml.GpmMetricsGetType{
		NumMetrics: uint32(len(metrics)), Sample1: p.samples[1-p.newest], Sample2: p.samples[p.newest],
	}
	for i, m := range metrics {
		request.Metrics[i].MetricId = uint32(m.Metric)
	}
	if ret := p.lib.api.GpmMetricsGet(request); ret != nvml.SUCCESS {
		return Status(ret)
	}
	for i := range metrics {
		got := &request.Metrics[i]
		metrics[i].Value, metrics[i].Status = CheckedFloat(got.Value, Status(int32(got.NvmlReturn)))
	}
	return OK
}

func (p *profiler) Close() { p.free(len(p.samples)) }

func (p *profiler) free(n int) {
	for _, sample := range p.samples[:n] {
		_ = p.lib.api.GpmSampleFree(sample)
	}
}
