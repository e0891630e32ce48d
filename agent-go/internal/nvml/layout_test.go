//go:build cgo

package nvml

import (
	"testing"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The driver reads and writes these layouts, and the length of the list of metrics has grown from release to release
// (98, 210, 333 ...). A new go-nvml must not change what we rely on without being noticed.
func TestTheLayoutsThatTheDriverFillsIn(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"a metric":        {unsafe.Sizeof(nvml.GpmMetric{}), 40},
		"its value":       {unsafe.Offsetof(nvml.GpmMetric{}.Value), 8},
		"metrics":         {uintptr(len(nvml.GpmMetricsGetType{}.Metrics)), 477},
		"a field value":   {unsafe.Sizeof(nvml.FieldValue{}), 40},
		"its union":       {unsafe.Offsetof(nvml.FieldValue{}.Value), 32},
		"a process":       {unsafe.Sizeof(nvml.ProcessInfo{}), 24},
		"memory":          {unsafe.Sizeof(nvml.Memory_v2{}), 40},
		"the fabric":      {unsafe.Sizeof(nvml.GpuFabricInfo_v3{}), 40},
		"its older form":  {unsafe.Sizeof(nvml.GpuFabricInfo_v2{}), 36},
		"a margin":        {unsafe.Sizeof(nvml.MarginTemperature{}), 8},
		"a PCI address":   {unsafe.Sizeof(nvml.PciInfo{}), 68},
		"MIG attributes":  {unsafe.Sizeof(nvml.DeviceAttributes{}), 40},
		"version of GPM":  {uintptr(nvml.GPM_METRICS_GET_VERSION), 1},
		"highest metric":  {uintptr(nvml.GPM_METRIC_MAX), 477},
		"links at most":   {uintptr(nvml.NVLINK_MAX_LINKS), 36},
		"recovery action": {uintptr(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION), uintptr(FieldRecoveryAction)},
		"error rates":     {uintptr(nvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER), uintptr(FieldLinkSymbolBER)},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, not %d", name, c[0], c[1])
		}
	}
}
