// Package hostfs reads what the kernel says of the node and its processes, below roots that tests and containers set.
package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Host is where /proc and /sys are.
type Host struct {
	Proc string
	Sys  string
}

// defaultPIDMax is the kernel's own limit for 64-bit machines, used when the node's cannot be read.
const defaultPIDMax = 4 << 20

// BootID is the random id that the kernel gave this boot.
func (h Host) BootID() (string, error) {
	id, err := h.line("sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	if id == "" {
		return "", errors.New("boot id: empty")
	}
	return id, nil
}

// KernelRelease is what uname -r prints, or empty.
func (h Host) KernelRelease() string {
	release, err := h.line("sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return release
}

// PIDMax is the highest process id that there can be.
func (h Host) PIDMax() uint64 {
	text, err := h.line("sys/kernel/pid_max")
	if err != nil {
		return defaultPIDMax
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return defaultPIDMax
	}
	return n
}

func (h Host) line(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(h.Proc, path))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}

// ShortHostname is the host's name without its domain.
func ShortHostname() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	short, _, _ := strings.Cut(name, ".")
	return short, nil
}
