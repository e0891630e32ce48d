//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// profiler keeps two samples and overwrites the older one.
type profiler struct {
	lib     *library
	d       nvml.Device
	gi      int // the GPU instance, or wholeGPU
	request nvml.GpmMetricsGetType
	samples [2]nvml.GpmSample
	newest  int
	taken   int
}

const wholeGPU = -1

// Profiler implements [Device].
func (d *device) Profiler() (Profiler, Status) { return d.profiler(wholeGPU) }

// InstanceProfiler implements [Device].
func (d *device) InstanceProfiler(gi uint64) (Profiler, Status) {
	if d.lacks("nvmlGpmMigSampleGet") {
		return nil, FunctionNotFound
	}
	return d.profiler(int(gi))
}

func (d *device) profiler(gi int) (Profiler, Status) {
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
	p := &profiler{lib: d.lib, d: d.d, gi: gi}
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
	var ret nvml.Return
	if p.gi == wholeGPU {
		ret = p.d.GpmSampleGet(p.samples[next])
	} else {
		ret = p.d.GpmMigSampleGet(p.gi, p.samples[next])
	}
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
	request := &p.request
	request.NumMetrics, request.Sample1, request.Sample2 = uint32(len(metrics)), p.samples[1-p.newest], p.samples[p.newest]
	for i, m := range metrics {
		// What it held is not to be taken for an answer.
		request.Metrics[i] = nvml.GpmMetric{MetricId: uint32(m.Metric), NvmlReturn: uint32(nvml.ERROR_UNKNOWN)}
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
