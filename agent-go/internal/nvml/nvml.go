// Package nvml is the agent's own narrow view of the NVIDIA management library: the calls it needs, each with its own
// status, so that one field that a GPU lacks never hides the others. Tests put a script in its place; the real one is
// loaded from a library path when the program runs.
package nvml

import (
	"fmt"
	"strconv"
)

// Status is what one call answered.
type Status int

// The statuses that matter, by NVML's own numbers.
const (
	OK                   Status = 0
	Uninitialized        Status = 1
	InvalidArgument      Status = 2
	NotSupported         Status = 3
	NoPermission         Status = 4
	NotFound             Status = 6
	DriverNotLoaded      Status = 9
	Timeout              Status = 10
	LibraryNotFound      Status = 12
	FunctionNotFound     Status = 13
	Lost                 Status = 15
	ResetRequired        Status = 16
	InUse                Status = 19
	LibRMVersionMismatch Status = 18
	VersionMismatch      Status = 25
	Unknown              Status = 999

	// Implausible is our own: the call succeeded with a value that cannot be.
	Implausible Status = -1
	// Blank is our own: the call succeeded with a value that stands for none.
	Blank Status = -2
	// Unread is our own: the call was not made.
	Unread Status = -3
	// Paused is our own: the call was not made, since a job is to have the performance monitor for itself.
	Paused Status = -4
)

// String is the reason as the bus carries it.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Uninitialized:
		return "uninitialized"
	case InvalidArgument:
		return "invalid_argument"
	case NotSupported, FunctionNotFound, VersionMismatch:
		return "not_supported"
	case NoPermission:
		return "no_permission"
	case NotFound:
		return "not_found"
	case DriverNotLoaded:
		return "driver_not_loaded"
	case Timeout:
		return "timeout"
	case LibraryNotFound:
		return "library_not_found"
	case Lost:
		return "lost"
	case ResetRequired:
		return "reset_required"
	case InUse:
		return "in_use"
	case LibRMVersionMismatch:
		return "driver_mismatch"
	case Implausible:
		return "implausible"
	case Blank:
		return "blank"
	case Unread:
		return "not_read"
	case Paused:
		return "paused"
	default:
		return "error_" + strconv.Itoa(int(s))
	}
}

// InitError says why the library cannot be used.
type InitError struct {
	Status Status
	Detail string
}

// Error implements error.
func (e *InitError) Error() string {
	if e.Detail == "" {
		return "nvml: " + e.Status.String()
	}
	return fmt.Sprintf("nvml: %s: %s", e.Status, e.Detail)
}

// Absent tells whether there is nothing to use, as opposed to something broken.
func (e *InitError) Absent() bool {
	return e.Status == LibraryNotFound || e.Status == DriverNotLoaded
}

// Library is the management library.
type Library interface {
	// Init loads and opens it; the error is an [*InitError].
	Init() error
	Shutdown()
	Versions() Versions
	Count() (int, Status)
	Device(index int) (Device, Status)
}

// Versions are those of the parts, empty where not known.
type Versions struct {
	Driver string
	NVML   string
	CUDA   string
}

// ClockKind is one of a GPU's clocks.
type ClockKind int

// The clocks.
const (
	ClockSM ClockKind = iota
	ClockMemory
)

// Violation is a reason for which time slowed down is counted.
type Violation int

// The violations.
const (
	ViolationPower Violation = iota
	ViolationThermal
)

// Device is one GPU. Any call may hang for ever.
type Device interface {
	UUID() (string, Status)
	Name() (string, Status)
	Serial() (string, Status)
	VBIOS() (string, Status)
	// PCI is the address as NVML writes it.
	PCI() (string, Status)
	Minor() (int, Status)
	NUMANode() (int, Status)
	MIG() (bool, Status)

	PowerMilliwatts() (uint64, Status)
	PowerLimitMilliwatts() (uint64, Status)
	PowerLimitDefaultMilliwatts() (uint64, Status)
	EnergyMillijoules() (uint64, Status)
	Temperature() (uint64, Status)
	TemperatureSlowdown() (uint64, Status)
	ClockMHz(kind ClockKind) (uint64, Status)
	ClockMaxMHz(kind ClockKind) (uint64, Status)
	// UtilizationPercent is the GPU's and its memory's.
	UtilizationPercent() (gpu, memory uint64, status Status)
	MemoryBytes() (total, used uint64, status Status)
	FanPercent() (uint64, Status)
	PState() (uint64, Status)
	Persistence() (bool, Status)
	ClockEventReasons() (uint64, Status)
	ViolationNanoseconds(kind Violation) (uint64, Status)

	ECC(corrected, aggregate bool) (uint64, Status)
	RemappedRows() (RemappedRows, Status)
	RetiredPages(doubleBit bool) (uint64, Status)

	PCIeGeneration() (uint64, Status)
	PCIeWidth() (uint64, Status)
	PCIeGenerationMax() (uint64, Status)
	PCIeWidthMax() (uint64, Status)
	PCIeReplays() (uint64, Status)

	// NVLinkUp tells whether a link is up; InvalidArgument says that there is no such link.
	NVLinkUp(link int) (bool, Status)
	// Fields fills in the value and status of each.
	Fields(fields []Field) Status
	Processes() ([]Process, Status)
	// Profiler opens the GPU's performance monitor.
	Profiler() (Profiler, Status)
}

// RemappedRows is what NVML says of remapped memory rows.
type RemappedRows struct {
	Correctable, Uncorrectable uint64
	Pending, Failed            bool
}

// FieldID is the number of a field value.
type FieldID uint32

// The fields that the agent reads.
const (
	FieldMemoryTemperature FieldID = 82
	FieldNVLinkCRCFlit     FieldID = 38
	FieldNVLinkCRCData     FieldID = 45
	FieldNVLinkReplay      FieldID = 52
	FieldNVLinkRecovery    FieldID = 59
	FieldNVLinkTxKiB       FieldID = 138
	FieldNVLinkRxKiB       FieldID = 139
	FieldPCIeTxBytes       FieldID = 197
	FieldPCIeRxBytes       FieldID = 198
	FieldRecoveryAction    FieldID = 230
	FieldNVLink5Recoveries FieldID = 215
	AllLinks               uint32  = 0xFFFFFFFF
	notAvailable           uint64  = 0xFFFFFFFFFFFFFFFF
	smallestBlank64        uint64  = 0x7FFFFFFFFFFFFFF0
	largestBlank64         uint64  = 0x7FFFFFFFFFFFFFFF
	smallestBlank32        uint64  = 0x7FFFFFF0
	largestBlank32         uint64  = 0x7FFFFFFF
	notAvailable32         uint64  = 0xFFFFFFFF
	smallestBlankFloat     float64 = 140737488355328
	largestBlankFloat      float64 = smallestBlankFloat + 16
)

// Field asks for one field value.
type Field struct {
	ID     FieldID
	Scope  uint32
	Value  uint64
	Status Status
}

// Process is a compute process on a GPU.
type Process struct {
	PID uint64
	// MemoryBytes is nil when the driver does not say.
	MemoryBytes *uint64
}

// Metric is the number of a performance monitor metric.
type Metric uint32

// The metrics that the agent reads: percents, and MiB a second.
const (
	MetricSMActive     Metric = 2
	MetricSMOccupancy  Metric = 3
	MetricTensorActive Metric = 5
	MetricDRAMActive   Metric = 10
	MetricPCIeTx       Metric = 20
	MetricPCIeRx       Metric = 21
	MetricNVLinkRx     Metric = 60
	MetricNVLinkTx     Metric = 61
)

// MetricValue is the average of a metric over the time between two samples.
type MetricValue struct {
	Metric Metric
	Value  float64
	Status Status
}

// Profiler averages metrics between samples.
type Profiler interface {
	// Sample takes a sample and keeps the one before.
	Sample() Status
	// Read fills in the averages between the last two samples.
	Read(metrics []MetricValue) Status
	Close()
}

// Checked64 turns a value that stands for "none" into the status Blank.
func Checked64(v uint64, s Status) (uint64, Status) {
	if s == OK && (v == notAvailable || v >= smallestBlank64 && v <= largestBlank64) {
		return 0, Blank
	}
	return v, s
}

// Checked32 is Checked64 for values that the library keeps in 32 bits.
func Checked32(v uint64, s Status) (uint64, Status) {
	if s == OK && (v == notAvailable32 || v >= smallestBlank32 && v <= largestBlank32) {
		return 0, Blank
	}
	return v, s
}

// CheckedFloat is Checked64 for floats.
func CheckedFloat(v float64, s Status) (float64, Status) {
	if s == OK && (v != v || v >= smallestBlankFloat && v <= largestBlankFloat) {
		return 0, Blank
	}
	return v, s
}
