//go:build cgo

package nvml

import (
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// device is a GPU or a MIG device. Its buffer is used by one call at a time.
type device struct {
	lib    *library
	d      nvml.Device
	values []nvml.FieldValue
}

// lacks tells whether a call must not be made since the library has none of these symbols.
func (d *device) lacks(symbols ...string) bool {
	for _, symbol := range symbols {
		if d.lib.has[symbol] {
			return false
		}
	}
	return true
}

// text, u32 and u64 make one call, unless the library lacks it.
func (d *device) text(symbol string, call func() (string, nvml.Return)) (string, Status) {
	if d.lacks(symbol) {
		return "", FunctionNotFound
	}
	s, ret := call()
	return s, Status(ret)
}

func u32[T ~int | ~int32 | ~uint32](d *device, symbol string, call func() (T, nvml.Return)) (uint64, Status) {
	if d.lacks(symbol) {
		return 0, FunctionNotFound
	}
	v, ret := call()
	return Checked32(uint64(uint32(v)), Status(ret))
}

func (d *device) u64(symbol string, call func() (uint64, nvml.Return)) (uint64, Status) {
	if d.lacks(symbol) {
		return 0, FunctionNotFound
	}
	v, ret := call()
	return Checked64(v, Status(ret))
}

func (d *device) PowerMilliwatts() (uint64, Status) {
	return u32(d, "nvmlDeviceGetPowerUsage", d.d.GetPowerUsage)
}

func (d *device) PowerLimitMilliwatts() (uint64, Status) {
	return u32(d, "nvmlDeviceGetEnforcedPowerLimit", d.d.GetEnforcedPowerLimit)
}

func (d *device) PowerLimitDefaultMilliwatts() (uint64, Status) {
	return u32(d, "nvmlDeviceGetPowerManagementDefaultLimit", d.d.GetPowerManagementDefaultLimit)
}

func (d *device) PowerLimitsMilliwatts() (least, most uint64, status Status) {
	if d.lacks("nvmlDeviceGetPowerManagementLimitConstraints") {
		return 0, 0, FunctionNotFound
	}
	low, high, ret := d.d.GetPowerManagementLimitConstraints()
	least, status = Checked32(uint64(low), Status(ret))
	if status == OK {
		most, status = Checked32(uint64(high), OK)
	}
	return least, most, status
}

func (d *device) EnergyMillijoules() (uint64, Status) {
	return d.u64("nvmlDeviceGetTotalEnergyConsumption", d.d.GetTotalEnergyConsumption)
}

func (d *device) Temperature() (uint64, Status) {
	return u32(d, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
		return d.d.GetTemperature(nvml.TEMPERATURE_GPU)
	})
}

func (d *device) TemperatureThreshold(kind Threshold) (uint64, Status) {
	return u32(d, "nvmlDeviceGetTemperatureThreshold", func() (uint32, nvml.Return) {
		return d.d.GetTemperatureThreshold(nvml.TemperatureThresholds(kind))
	})
}

func (d *device) TemperatureMargin() (int64, Status) {
	if d.lacks("nvmlDeviceGetMarginTemperature") {
		return 0, FunctionNotFound
	}
	m, ret := d.d.GetMarginTemperature()
	return int64(m.MarginTemperature), Status(ret)
}

func clockType(kind ClockKind) nvml.ClockType {
	if kind == ClockMemory {
		return nvml.CLOCK_MEM
	}
	return nvml.CLOCK_SM
}

func (d *device) ClockMHz(kind ClockKind) (uint64, Status) {
	return u32(d, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return d.d.GetClockInfo(clockType(kind)) })
}

func (d *device) ClockMaxMHz(kind ClockKind) (uint64, Status) {
	return u32(d, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) {
		return d.d.GetMaxClockInfo(clockType(kind))
	})
}

func (d *device) UtilizationPercent() (gpu, memory uint64, status Status) {
	if d.lacks("nvmlDeviceGetUtilizationRates") {
		return 0, 0, FunctionNotFound
	}
	u, ret := d.d.GetUtilizationRates()
	return uint64(u.Gpu), uint64(u.Memory), Status(ret)
}

func (d *device) EncoderPercent() (uint64, Status) {
	return u32(d, "nvmlDeviceGetEncoderUtilization", func() (uint32, nvml.Return) {
		v, _, ret := d.d.GetEncoderUtilization()
		return v, ret
	})
}

func (d *device) DecoderPercent() (uint64, Status) {
	return u32(d, "nvmlDeviceGetDecoderUtilization", func() (uint32, nvml.Return) {
		v, _, ret := d.d.GetDecoderUtilization()
		return v, ret
	})
}

func (d *device) Memory() (Memory, Status) {
	// The second version tells what the driver reserves apart from what is used; the first adds them up.
	if !d.lacks("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := d.d.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return checkedMemory(Memory{Total: m.Total, Used: m.Used, Reserved: m.Reserved, Apart: true})
		}
	}
	if d.lacks("nvmlDeviceGetMemoryInfo") {
		return Memory{}, FunctionNotFound
	}
	m, ret := d.d.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return Memory{}, Status(ret)
	}
	return checkedMemory(Memory{Total: m.Total, Used: m.Used})
}

func checkedMemory(m Memory) (Memory, Status) {
	for _, v := range []uint64{m.Total, m.Used, m.Reserved} {
		if _, s := Checked64(v, OK); s != OK {
			return Memory{}, s
		}
	}
	return m, OK
}

func (d *device) BAR1UsedBytes() (uint64, Status) {
	return d.u64("nvmlDeviceGetBAR1MemoryInfo", func() (uint64, nvml.Return) {
		m, ret := d.d.GetBAR1MemoryInfo()
		return m.Bar1Used, ret
	})
}

func (d *device) FanPercent() (uint64, Status) {
	return u32(d, "nvmlDeviceGetFanSpeed", d.d.GetFanSpeed)
}

func (d *device) PState() (uint64, Status) {
	return u32(d, "nvmlDeviceGetPerformanceState", d.d.GetPerformanceState)
}

func (d *device) Persistence() (bool, Status) {
	v, s := u32(d, "nvmlDeviceGetPersistenceMode", d.d.GetPersistenceMode)
	return v == uint64(nvml.FEATURE_ENABLED), s
}

func (d *device) ClockEventReasons() (uint64, Status) {
	if !d.lacks("nvmlDeviceGetCurrentClocksEventReasons") {
		return d.u64("nvmlDeviceGetCurrentClocksEventReasons", d.d.GetCurrentClocksEventReasons)
	}
	return d.u64("nvmlDeviceGetCurrentClocksThrottleReasons", d.d.GetCurrentClocksThrottleReasons)
}

func (d *device) ViolationNanoseconds(kind Violation) (uint64, Status) {
	return d.u64("nvmlDeviceGetViolationStatus", func() (uint64, nvml.Return) {
		v, ret := d.d.GetViolationStatus(nvml.PerfPolicyType(kind))
		return v.ViolationTime, ret
	})
}

func (d *device) ECCMode() (bool, Status) {
	v, s := u32(d, "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := d.d.GetEccMode()
		return current, ret
	})
	return v == uint64(nvml.FEATURE_ENABLED), s
}

func (d *device) ECC(corrected, aggregate bool) (uint64, Status) {
	kind, counter := nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC
	if corrected {
		kind = nvml.MEMORY_ERROR_TYPE_CORRECTED
	}
	if aggregate {
		counter = nvml.AGGREGATE_ECC
	}
	return d.u64("nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.d.GetTotalEccErrors(kind, counter)
	})
}

func (d *device) RemappedRows() (RemappedRows, Status) {
	if d.lacks("nvmlDeviceGetRemappedRows") {
		return RemappedRows{}, FunctionNotFound
	}
	correctable, uncorrectable, pending, failed, ret := d.d.GetRemappedRows()
	return RemappedRows{uint64(correctable), uint64(uncorrectable), pending, failed}, Status(ret)
}

func (d *device) RetiredPages(doubleBit bool) (uint64, Status) {
	if d.lacks("nvmlDeviceGetRetiredPages") {
		return 0, FunctionNotFound
	}
	cause := nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
	if doubleBit {
		cause = nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
	}
	pages, ret := d.d.GetRetiredPages(cause)
	return uint64(len(pages)), Status(ret)
}

func (d *device) PCIeGeneration() (uint64, Status) {
	return u32(d, "nvmlDeviceGetCurrPcieLinkGeneration", d.d.GetCurrPcieLinkGeneration)
}

func (d *device) PCIeWidth() (uint64, Status) {
	return u32(d, "nvmlDeviceGetCurrPcieLinkWidth", d.d.GetCurrPcieLinkWidth)
}

func (d *device) PCIeGenerationMax() (uint64, Status) {
	return u32(d, "nvmlDeviceGetMaxPcieLinkGeneration", d.d.GetMaxPcieLinkGeneration)
}

func (d *device) PCIeWidthMax() (uint64, Status) {
	return u32(d, "nvmlDeviceGetMaxPcieLinkWidth", d.d.GetMaxPcieLinkWidth)
}

func (d *device) PCIeReplays() (uint64, Status) {
	return u32(d, "nvmlDeviceGetPcieReplayCounter", d.d.GetPcieReplayCounter)
}

func (d *device) Fields(fields []Field) Status {
	if d.lacks("nvmlDeviceGetFieldValues") {
		for i := range fields {
			fields[i].Status = FunctionNotFound
		}
		return FunctionNotFound
	}
	if len(d.values) < len(fields) {
		d.values = make([]nvml.FieldValue, len(fields))
	}
	values := d.values[:len(fields)]
	for i, f := range fields {
		values[i] = nvml.FieldValue{FieldId: uint32(f.ID), ScopeId: f.Scope}
	}
	ret := d.d.GetFieldValues(values)
	for i := range fields {
		if fields[i].Value, fields[i].Status = 0, Status(ret); ret == nvml.SUCCESS {
			fields[i].Value, fields[i].Status = fieldValue(&values[i])
			fields[i].Wide = wide(&values[i])
		}
	}
	return Status(ret)
}

func wide(v *nvml.FieldValue) bool {
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG,
		nvml.VALUE_TYPE_DOUBLE:
		return true
	default:
		return false
	}
}

// fieldValue reads the union of a field value. None of our fields can be below zero.
func fieldValue(v *nvml.FieldValue) (uint64, Status) {
	if s := Status(int32(v.NvmlReturn)); s != OK {
		return 0, s
	}
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return Checked32(uint64(binary.NativeEndian.Uint32(v.Value[:])), OK)
	case nvml.VALUE_TYPE_SIGNED_INT:
		n := int32(binary.NativeEndian.Uint32(v.Value[:]))
		if n < 0 {
			return 0, Implausible
		}
		return Checked32(uint64(n), OK)
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return Checked64(binary.NativeEndian.Uint64(v.Value[:]), OK)
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		n := int64(binary.NativeEndian.Uint64(v.Value[:]))
		if n < 0 {
			return 0, Implausible
		}
		return Checked64(uint64(n), OK)
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(v.Value[:])), OK
	case nvml.VALUE_TYPE_DOUBLE:
		f, s := CheckedFloat(math.Float64frombits(binary.NativeEndian.Uint64(v.Value[:])), OK)
		if s == OK && f < 0 {
			return 0, Implausible
		}
		return uint64(f), s
	default:
		return 0, Unknown
	}
}
