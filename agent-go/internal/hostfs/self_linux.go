package hostfs

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the CPU time that this process has used.
func CPUTime() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// RSS is the resident memory of this process, in bytes.
func RSS() (uint64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, strconv.ErrSyntax
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}

// Descriptors is how many file descriptors this process has open.
func Descriptors() (uint64, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	return uint64(len(names) - 1), nil // without the one of the folder
}

// SinceBoot is the time since the node booted, suspension included.
func SinceBoot() (time.Duration, error) { return clock(unix.CLOCK_BOOTTIME) }

// Monotonic is the time on the clock that stamps kernel log records.
func Monotonic() (time.Duration, error) { return clock(unix.CLOCK_MONOTONIC) }

func clock(id int32) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
