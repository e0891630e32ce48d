//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

func (d *device) UUID() (string, Status)   { return d.text("nvmlDeviceGetUUID", d.d.GetUUID) }
func (d *device) Name() (string, Status)   { return d.text("nvmlDeviceGetName", d.d.GetName) }
func (d *device) Serial() (string, Status) { return d.text("nvmlDeviceGetSerial", d.d.GetSerial) }
func (d *device) VBIOS() (string, Status) {
	return d.text("nvmlDeviceGetVbiosVersion", d.d.GetVbiosVersion)
}
func (d *device) BoardPart() (string, Status) {
	return d.text("nvmlDeviceGetBoardPartNumber", d.d.GetBoardPartNumber)
}

// architectures are words for NVML's numbers.
var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER: "kepler", nvml.DEVICE_ARCH_MAXWELL: "maxwell", nvml.DEVICE_ARCH_PASCAL: "pascal",
	nvml.DEVICE_ARCH_VOLTA: "volta", nvml.DEVICE_ARCH_TURING: "turing", nvml.DEVICE_ARCH_AMPERE: "ampere",
	nvml.DEVICE_ARCH_ADA: "ada", nvml.DEVICE_ARCH_HOPPER: "hopper", nvml.DEVICE_ARCH_BLACKWELL: "blackwell",
	nvml.DEVICE_ARCH_RUBIN: "rubin",
}

func (d *device) Architecture() (string, Status) {
	if d.lacks("nvmlDeviceGetArchitecture") {
		return "", FunctionNotFound
	}
	a, ret := d.d.GetArchitecture()
	return architectures[a], Status(ret)
}

func (d *device) PCI() (string, Status) {
	if d.lacks("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3") {
		return "", FunctionNotFound
	}
	info, ret := d.d.GetPciInfo()
	return busID(&info, Status(ret))
}

// busID is the address, or its shorter form, which is all that old drivers give.
func busID(info *nvml.PciInfo, s Status) (string, Status) {
	if s != OK {
		return "", s
	}
	for _, field := range [][]int8{info.BusId[:], info.BusIdLegacy[:]} {
		if text := cText(field); text != "" {
			return text, OK
		}
	}
	return "", Blank
}

func cText(chars []int8) string {
	var text []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}

func (d *device) Minor() (int, Status) {
	v, s := u32(d, "nvmlDeviceGetMinorNumber", d.d.GetMinorNumber)
	return int(v), s
}

func (d *device) NUMANode() (int, Status) {
	v, s := u32(d, "nvmlDeviceGetNumaNodeId", d.d.GetNumaNodeId)
	return int(v), s
}

// Processes implements [Device].
func (d *device) Processes() ([]Process, Status) {
	if d.lacks("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2",
		"nvmlDeviceGetComputeRunningProcesses_v3") {
		return nil, FunctionNotFound
	}
	return processes(d.d.GetComputeRunningProcesses())
}

// MPSProcesses implements [Device].
func (d *device) MPSProcesses() ([]Process, Status) {
	if d.lacks("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
		"nvmlDeviceGetMPSComputeRunningProcesses_v3") {
		return nil, FunctionNotFound
	}
	return processes(d.d.GetMPSComputeRunningProcesses())
}

func processes(list []nvml.ProcessInfo, ret nvml.Return) ([]Process, Status) {
	if ret != nvml.SUCCESS {
		return nil, Status(ret)
	}
	all := make([]Process, len(list))
	for i := range list {
		p := &list[i]
		all[i].PID = uint64(p.Pid)
		if used, s := Checked64(p.UsedGpuMemory, OK); s == OK {
			all[i].MemoryBytes = &used
		}
		all[i].GI, all[i].CI = instance(p.GpuInstanceId), instance(p.ComputeInstanceId)
	}
	return all, OK
}
