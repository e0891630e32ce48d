// Package pci writes PCI addresses in the one form that the bus uses.
package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// Normalise turns any spelling of an address (00000000:3B:00.0, PCI:0000:3b:00, 3b:00.0) into 0000:3b:00, and says
// whether it was one. The domain keeps what it has beyond four digits; the function is dropped.
func Normalise(s string) (string, bool) {
	address, _, ok := Split(s)
	return address, ok
}

// Split is [Normalise] that also gives the function, which is 0 where none is written.
func Split(s string) (address string, function uint64, ok bool) {
	s = strings.TrimSpace(s)
	if len(s) > 4 && strings.EqualFold(s[:4], "PCI:") {
		s = s[4:]
	}
	s, fn, hasFunction := strings.Cut(s, ".")
	if hasFunction {
		n, err := strconv.ParseUint(fn, 16, 8)
		if err != nil || len(fn) != 1 || n > 7 {
			return "", 0, false
		}
		function = n
	}
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 {
		return "", 0, false
	}
	var n [3]uint64
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 16, 32)
		if err != nil || len(part) > 8 || i > 0 && len(part) != 2 || i == 0 && len(part) < 4 {
			return "", 0, false
		}
		n[i] = v
	}
	if n[2] > 0x1F {
		return "", 0, false
	}
	return fmt.Sprintf("%04x:%02x:%02x", n[0], n[1], n[2]), function, true
}
