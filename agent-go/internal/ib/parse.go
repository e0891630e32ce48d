package ib

import (
	"bytes"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// errNoPMA says that the kernel prints words instead of a number, since the port has no performance counters.
var errNoPMA = errors.New("no_pma")

// errNotNumber says that a file holds something else than what it should.
var errNotNumber = errors.New("not_a_number")

// reason is an error as the bus carries it.
func reason(err error) string {
	switch {
	case errors.Is(err, errNoPMA):
		return "no_pma"
	case errors.Is(err, errNotNumber):
		return "not_a_number"
	default:
		return hostfs.Reason(err)
	}
}

// gone tells whether a port went away between listing and reading.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) ||
		errors.Is(err, syscall.EIO)
}

// refusal tells whether it makes no sense to ask again soon.
func refusal(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, errNoPMA) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EOPNOTSUPP)
}

// parseCounter reads the text of a counter file.
func parseCounter(text []byte) (uint64, error) {
	if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
		return n, nil
	}
	if bytes.HasPrefix(text, []byte("N/A")) {
		return 0, errNoPMA
	}
	return 0, errNotNumber
}

// parseID reads "0x12", as LIDs are written, and plain numbers.
func parseID(text []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(text), 0, 32)
	return n, err == nil
}

func parsePort(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 16)
	return n, err == nil
}

// parseState reads "4: ACTIVE".
func parseState(text []byte) (uint64, bool) {
	number, _, _ := bytes.Cut(text, []byte(":"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 8)
	return n, err == nil
}

// parseRate reads "400 Gb/sec (4X NDR)", and "2.5 Gb/sec (1X SDR)".
func parseRate(text []byte) (float64, bool) {
	number, rest, _ := strings.Cut(string(text), " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || !(rate > 0 && rate <= 1e6) || !strings.HasPrefix(rest, "Gb/sec") {
		return 0, false
	}
	return rate, true
}

// parseGUID reads "b83f:d203:0012:3456". One of zeros names nothing: some drivers never set it, and a virtual function
// has it until its owner gives it one.
func parseGUID(text []byte) string {
	if len(bytes.Trim(text, "0:x")) == 0 {
		return ""
	}
	return string(text)
}

func stateName(text []byte) heelerv1.IbState {
	names := [...]heelerv1.IbState{"nop", "down", "init", "armed", "active", "active_defer"}
	if n, ok := parseState(text); ok && n < uint64(len(names)) {
		return names[n]
	}
	return "unknown"
}

func physName(text []byte) heelerv1.IbPhysState {
	names := [...]heelerv1.IbPhysState{
		"unknown", "sleep", "polling", "disabled", "training", "link_up", "link_error_recovery", "phy_test",
	}
	if n, ok := parseState(text); ok && n < uint64(len(names)) {
		return names[n]
	}
	return "unknown"
}

func layerName(text []byte) heelerv1.LinkLayer {
	switch layer := strings.ToLower(string(text)); layer {
	case "infiniband", "ethernet":
		return heelerv1.LinkLayer(layer)
	default:
		return "unknown"
	}
}
