//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

const bytesOfMiB = 1 << 20

func (d *device) MIG() (bool, Status) {
	if d.lacks("nvmlDeviceGetMigMode") {
		return false, FunctionNotFound
	}
	current, _, ret := d.d.GetMigMode()
	return current == nvml.DEVICE_MIG_ENABLE, Status(ret)
}

func (d *device) MIGPlaces() (int, Status) {
	if d.lacks("nvmlDeviceGetMaxMigDeviceCount") {
		return 0, FunctionNotFound
	}
	n, ret := d.d.GetMaxMigDeviceCount()
	return n, Status(ret)
}

func (d *device) MIGDevice(place int) (Device, Status) {
	if d.lacks("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil, FunctionNotFound
	}
	mig, ret := d.d.GetMigDeviceHandleByIndex(place)
	if ret != nvml.SUCCESS {
		return nil, Status(ret)
	}
	return &device{lib: d.lib, d: mig}, OK
}

func (d *device) Instance() (gi, ci uint64, status Status) {
	if gi, status = u32(d, "nvmlDeviceGetGpuInstanceId", d.d.GetGpuInstanceId); status == OK {
		ci, status = u32(d, "nvmlDeviceGetComputeInstanceId", d.d.GetComputeInstanceId)
	}
	return gi, ci, status
}

func (d *device) Slices() (Slices, Status) {
	if d.lacks("nvmlDeviceGetAttributes", "nvmlDeviceGetAttributes_v2") {
		return Slices{}, FunctionNotFound
	}
	a, ret := d.d.GetAttributes()
	return Slices{
		GPU: uint64(a.GpuInstanceSliceCount), Compute: uint64(a.ComputeInstanceSliceCount),
		MemoryBytes: a.MemorySizeMB * bytesOfMiB,
	}, Status(ret)
}
