//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

func (d *device) NVLinkUp(link int) (bool, Status) {
	if d.lacks("nvmlDeviceGetNvLinkState") {
		return false, FunctionNotFound
	}
	state, ret := d.d.GetNvLinkState(link)
	return state == nvml.FEATURE_ENABLED, Status(ret)
}

func (d *device) NVLinkVersion(link int) (uint64, Status) {
	return u32(d, "nvmlDeviceGetNvLinkVersion", func() (uint32, nvml.Return) { return d.d.GetNvLinkVersion(link) })
}

func (d *device) NVLinkRemotePCI(link int) (string, Status) {
	if d.lacks("nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return "", FunctionNotFound
	}
	info, ret := d.d.GetNvLinkRemotePciInfo(link)
	return busID(&info, Status(ret))
}

// linkEnds are words for what a link leads to.
var linkEnds = map[nvml.IntNvLinkDeviceType]string{
	nvml.NVLINK_DEVICE_TYPE_GPU: "gpu", nvml.NVLINK_DEVICE_TYPE_IBMNPU: "npu", nvml.NVLINK_DEVICE_TYPE_SWITCH: "switch",
}

func (d *device) NVLinkRemoteType(link int) (string, Status) {
	if d.lacks("nvmlDeviceGetNvLinkRemoteDeviceType") {
		return "", FunctionNotFound
	}
	kind, ret := d.d.GetNvLinkRemoteDeviceType(link)
	word, ok := linkEnds[kind]
	if !ok {
		word = "unknown"
	}
	return word, Status(ret)
}

func (d *device) NVLinkErrors(link int, kind LinkError) (uint64, Status) {
	return d.u64("nvmlDeviceGetNvLinkErrorCounter", func() (uint64, nvml.Return) {
		return d.d.GetNvLinkErrorCounter(link, nvml.NvLinkErrorCounter(kind))
	})
}

// Fabric implements [Device]. A driver that knows only an older version of the call refuses the newer ones.
func (d *device) Fabric() (state, result uint64, status Status) {
	if !d.lacks("nvmlDeviceGetGpuFabricInfoV") {
		call := d.d.GetGpuFabricInfoV()
		info, ret := call.V3()
		if ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
			return uint64(info.State), uint64(info.Status), Status(ret)
		}
		older, ret := call.V2()
		if ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
			return uint64(older.State), uint64(older.Status), Status(ret)
		}
	}
	if d.lacks("nvmlDeviceGetGpuFabricInfo") {
		return 0, 0, FunctionNotFound
	}
	info, ret := d.d.GetGpuFabricInfo()
	return uint64(info.State), uint64(info.Status), Status(ret)
}
