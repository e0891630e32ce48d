package ib

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// errNoPMA says that the kernel prints words instead of a number, since the port has no performance counters.
var errNoPMA = errors.New("no_pma")

// errNotNumber says that a file holds something else than a number.
var errNotNumber = errors.New("not_a_number")

const largestFile = 4096 // sysfs files are no larger than a page

func readLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	buffer := make([]byte, largestFile)
	n, err := f.Read(buffer)
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(string(buffer[:n])), nil
}

// reason is an error as the bus carries it.
func reason(err error) string {
	switch {
	case errors.Is(err, errNoPMA):
		return "no_pma"
	case errors.Is(err, errNotNumber):
		return "not_a_number"
	case errors.Is(err, fs.ErrNotExist):
		return "not_present"
	case errors.Is(err, syscall.EINVAL):
		return "invalid"
	case errors.Is(err, fs.ErrPermission):
		return "no_permission"
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return "gone"
	case errors.Is(err, syscall.EIO):
		return "io_error"
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EOPNOTSUPP):
		return "not_supported"
	default:
		return "error"
	}
}

// parseCounter reads the text of a counter file.
func parseCounter(text string) (uint64, error) {
	if n, err := strconv.ParseUint(text, 0, 64); err == nil {
		return n, nil
	}
	if strings.HasPrefix(text, "N/A") {
		return 0, errNoPMA
	}
	return 0, errNotNumber
}

// parseState reads "4: ACTIVE".
func parseState(text string) (uint64, bool) {
	number, _, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 8)
	return n, err == nil
}

// parseRate reads "400 Gb/sec (4X NDR)", and "2.5 Gb/sec (1X SDR)".
func parseRate(text string) (float64, bool) {
	number, rest, _ := strings.Cut(text, " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || rate < 0 || rate > 1e6 || !strings.HasPrefix(rest, "Gb/sec") {
		return 0, false
	}
	return rate, true
}
