//go:build cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Built says that this program can load the library.
const Built = true

// Open returns the library at path, or the system's own where path is empty. It is loaded by Init.
func Open(path string) Library {
	if path == "" {
		return &library{api: nvml.New()}
	}
	return &library{api: nvml.New(nvml.WithLibraryPath(path))}
}

type library struct {
	api nvml.Interface
	has map[string]bool
}

// Init implements [Library].
func (l *library) Init() error {
	if ret := l.api.Init(); ret != nvml.SUCCESS {
		return &InitError{Status: Status(ret)}
	}
	// A symbol that an old driver lacks ends the process when it is called. So all are looked up once.
	l.has = map[string]bool{}
	for _, symbol := range symbols {
		l.has[symbol] = l.api.Extensions().LookupSymbol(symbol) == nil
	}
	return nil
}

// Shutdown implements [Library].
func (l *library) Shutdown() { _ = l.api.Shutdown() }

// Versions implements [Library].
func (l *library) Versions() Versions {
	var v Versions
	if l.has["nvmlSystemGetDriverVersion"] {
		if s, ret := l.api.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			v.Driver = s
		}
	}
	if l.has["nvmlSystemGetNVMLVersion"] {
		if s, ret := l.api.SystemGetNVMLVersion(); ret == nvml.SUCCESS {
			v.NVML = s
		}
	}
	if l.has["nvmlSystemGetCudaDriverVersion"] {
		if n, ret := l.api.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
			v.CUDA = fmt.Sprintf("%d.%d", n/1000, n%1000/10)
		}
	}
	return v
}

// Count implements [Library].
func (l *library) Count() (int, Status) {
	if !l.has["nvmlDeviceGetCount"] && !l.has["nvmlDeviceGetCount_v2"] {
		return 0, FunctionNotFound
	}
	n, ret := l.api.DeviceGetCount()
	return n, Status(ret)
}

// Device implements [Library].
func (l *library) Device(index int) (Device, Status) {
	if !l.has["nvmlDeviceGetHandleByIndex"] && !l.has["nvmlDeviceGetHandleByIndex_v2"] {
		return nil, FunctionNotFound
	}
	d, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, Status(ret)
	}
	return &device{lib: l, d: d}, OK
}

// symbols are all that device and library call.
var symbols = []string{
	"nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion",
	"nvmlDeviceGetCount", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion",
	"nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMinorNumber",
	"nvmlDeviceGetNumaNodeId", "nvmlDeviceGetMigMode", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
	"nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperature",
	"nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo",
	"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
	"nvmlDeviceGetFanSpeed", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetPersistenceMode",
	"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
	"nvmlDeviceGetViolationStatus", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows",
	"nvmlDeviceGetRetiredPages", "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth",
	"nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetPcieReplayCounter",
	"nvmlDeviceGetNvLinkState", "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses",
	"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
	"nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetArchitecture", "nvmlDeviceGetPowerManagementLimitConstraints",
	"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization",
	"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetEccMode", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV",
	"nvmlDeviceGetNvLinkVersion", "nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetNvLinkRemotePciInfo_v2",
	"nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkErrorCounter",
	"nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
	"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMaxMigDeviceCount",
	"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	"nvmlDeviceGetAttributes", "nvmlDeviceGetAttributes_v2", "nvmlGpmMigSampleGet",
	"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
}
