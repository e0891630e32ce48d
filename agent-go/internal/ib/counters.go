package ib

import (
	"math"
	"strings"
)

// widths are those of the counters of the port management agent, which stop at the top instead of starting anew.
// Many are wider in the kernel's files, but it fills them from these where the hardware has no wider ones.
var widths = map[string]uint{
	"symbol_error":                    16,
	"link_error_recovery":             8,
	"link_downed":                     8,
	"port_rcv_errors":                 16,
	"port_rcv_remote_physical_errors": 16,
	"port_rcv_switch_relay_errors":    16,
	"port_xmit_discards":              16,
	"port_xmit_constraint_errors":     8,
	"port_rcv_constraint_errors":      8,
	"local_link_integrity_errors":     4,
	"excessive_buffer_overrun_errors": 4,
	"VL15_dropped":                    16,
	"port_xmit_wait":                  32,
	"port_xmit_data":                  32,
	"port_rcv_data":                   32,
	"port_xmit_packets":               32,
	"port_rcv_packets":                32,
}

const wordBytes = 4

// inWords tells whether the kernel counts four-byte words.
func inWords(counter string) bool {
	return strings.HasSuffix(counter, "_data") || strings.HasSuffix(counter, "_data_64")
}

// saturated tells whether a counter stands at the top of its width.
func saturated(counter string, value uint64) bool {
	if value == math.MaxUint64 {
		return true
	}
	width, ok := widths[counter]
	return ok && value == 1<<width-1
}

// inBytes turns words into bytes; what does not fit is not known.
func inBytes(words uint64) (uint64, bool) {
	if words > math.MaxUint64/wordBytes {
		return 0, false
	}
	return words * wordBytes, true
}

// notCounters are files of hw_counters that count nothing.
func notCounter(name string) bool { return name == "lifespan" }
