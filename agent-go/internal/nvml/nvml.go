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
	InterruptIssue       Status = 11
	LibraryNotFound      Status = 12
	FunctionNotFound     Status = 13
	CorruptedInfoROM     Status = 14
	Lost                 Status = 15
	ResetRequired        Status = 16
	Blocked              Status = 17 // by the operating system
	LibRMVersionMismatch Status = 18
	InUse                Status = 19
	OutOfMemory          Status = 20
	NoData               Status = 21
	OutOfResources       Status = 23
	VersionMismatch      Status = 25
	Deprecated           Status = 26
	NotReady             Status = 27
	GPUNotFound          Status = 28
	InvalidState         Status = 29
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

// reasons are the statuses as the bus carries them. A call that the driver no longer or not yet has is one that it does
// not support.
var reasons = map[Status]string{
	OK: "ok", Uninitialized: "uninitialized", InvalidArgument: "invalid_argument", NotSupported: "not_supported",
	FunctionNotFound: "not_supported", VersionMismatch: "not_supported", Deprecated: "not_supported",
	NoPermission: "no_permission", NotFound: "not_found", DriverNotLoaded: "driver_not_loaded", Timeout: "timeout",
	InterruptIssue: "interrupt_issue", LibraryNotFound: "library_not_found", CorruptedInfoROM: "corrupted_inforom",
	Lost: "lost", ResetRequired: "reset_required", Blocked: "blocked_by_os", LibRMVersionMismatch: "driver_mismatch",
	InUse: "in_use", OutOfMemory: "out_of_memory", NoData: "no_data", OutOfResources: "out_of_resources",
	NotReady: "not_ready", GPUNotFound: "gpu_not_found", InvalidState: "invalid_state",
	Implausible: "implausible", Blank: "blank", Unread: "not_read", Paused: "paused",
}

// String is the reason as the bus carries it.
func (s Status) String() string {
	if reason, ok := reasons[s]; ok {
		return reason
	}
	return "error_" + strconv.Itoa(int(s))
}

// Lacking tells whether the GPU or its driver has no such thing, which asking again will not change.
func (s Status) Lacking() bool {
	return s == NotSupported || s == FunctionNotFound || s == VersionMismatch || s == Deprecated
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

// The numbers that stand for "none".
const (
	notAvailable       uint64  = 0xFFFFFFFFFFFFFFFF
	smallestBlank64    uint64  = 0x7FFFFFFFFFFFFFF0
	largestBlank64     uint64  = 0x7FFFFFFFFFFFFFFF
	smallestBlank32    uint64  = 0x7FFFFFF0
	largestBlank32     uint64  = 0x7FFFFFFF
	notAvailable32     uint64  = 0xFFFFFFFF
	smallestBlankFloat float64 = 140737488355328
	largestBlankFloat  float64 = smallestBlankFloat + 16
)

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
