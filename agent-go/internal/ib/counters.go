package ib

import (
	"math"
	"os"
	"path/filepath"
	"time"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// widths are those of the counters of the port management agent, in bits. They stop at the top instead of starting
// anew. The kernel's files would hold more, but it fills them from these.
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

// extended are the counters that have 64 bits where the adapter has the extended set, under the same names.
func extended(name string) bool {
	return name == "port_xmit_data" || name == "port_rcv_data" ||
		name == "port_xmit_packets" || name == "port_rcv_packets"
}

// onlyExtended are counters that the kernel shows only together with the extended set.
func onlyExtended(name string) bool {
	return name == "unicast_xmit_packets" || name == "unicast_rcv_packets"
}

const wordBytes = 4

// inWords tells whether the kernel counts four-byte words, whatever the lanes. Packets and hw_counters are not.
func inWords(counter string) bool {
	switch counter {
	case "port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64":
		return true
	default:
		return false
	}
}

// notCounters are files of hw_counters that count nothing.
func notCounter(name string) bool { return name == "lifespan" }

// inBytes turns words into bytes; what does not fit is not known.
func inBytes(words uint64) (uint64, bool) {
	if words > math.MaxUint64/wordBytes {
		return 0, false
	}
	return words * wordBytes, true
}

// counter is one file.
type counter struct {
	name, path string
	width      uint // of the classic counter; 0 where there is none, as in hw_counters
	wide       bool // has been seen past its classic width
	atTop      bool // stood at its classic top at the last reading
	words      bool
	why        string    // it was refused
	until      time.Time // when it is asked again
}

// refusedTime is how long a file that was refused is left alone.
const refusedTime = 4 * time.Hour

// counters are the counters of a port.
type counters struct {
	files   []*counter
	missing map[string]string // folders that are not there
	ext     bool              // the port is known to have the extended set
}

// list finds the files, and keeps what is known of those that were there before.
func (s *counters) list(port, device string) {
	known := make(map[string]*counter, len(s.files))
	for _, f := range s.files {
		known[f.path] = f
	}
	ext := s.ext
	*s = counters{ext: ext, missing: map[string]string{}}
	taken := map[string]bool{}
	s.folder(filepath.Join(port, "counters"), "counters", known, taken)
	s.folder(filepath.Join(port, "counters_ext"), "", known, taken) // of older drivers
	// Some drivers count for the device and not for each port; that says the same where there is one port.
	hw := filepath.Join(port, "hw_counters")
	if _, err := os.Stat(hw); err != nil && device != "" {
		hw = filepath.Join(device, "hw_counters")
	}
	s.folder(hw, "hw_counters", known, taken)
}

func (s *counters) folder(dir, name string, known map[string]*counter, taken map[string]bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if name != "" {
			s.missing[name] = reason(err)
		}
		return
	}
	for _, e := range entries {
		file := e.Name()
		if e.IsDir() || notCounter(file) || taken[file] {
			continue
		}
		taken[file] = true
		path := filepath.Join(dir, file)
		f := known[path]
		if f == nil {
			f = &counter{name: file, path: path, words: inWords(file)}
			if name == "counters" {
				f.width = widths[file]
			}
		}
		s.ext = s.ext || name == "counters" && onlyExtended(file)
		s.files = append(s.files, f)
	}
}

// read reads all counters into the port. An error says that the device has gone.
func (s *counters) read(p *heelerv1.IbPort, r *hostfs.Reader, now time.Time) (refused uint64, err error) {
	p.Counters = make(map[string]uint64, len(s.files))
	for name, why := range s.missing {
		p.Absent[name] = why
	}
	for _, f := range s.files {
		if now.Before(f.until) {
			p.Absent[f.name] = f.why
			refused++
			continue
		}
		text, err := r.Line(f.path)
		var value uint64
		if err == nil {
			value, err = parseCounter(text)
		}
		switch {
		case err == nil:
			s.put(p, f, value)
		case refusal(err):
			f.why, f.until = reason(err), now.Add(refusedTime)
			p.Absent[f.name] = f.why
			refused++
		case reason(err) == "gone":
			return refused, err
		default:
			p.Absent[f.name] = reason(err)
		}
	}
	return refused, nil
}

func (s *counters) put(p *heelerv1.IbPort, f *counter, value uint64) {
	full := s.saturated(f, value)
	if full {
		p.Saturated = append(p.Saturated, f.name)
	}
	if f.words {
		var ok bool
		if value, ok = inBytes(value); !ok {
			p.Absent[f.name] = "overflow"
			if !full {
				p.Saturated = append(p.Saturated, f.name)
			}
			return
		}
	}
	p.Counters[f.name] = value
}

// saturated tells whether a counter stands at the top of its width, where it says nothing any more.
//
// The width is that of the classic counter. One that was ever seen past it is wider, as is known from then on, until the
// device is plugged in again. Where the extended set shows, in counters of its own or in a value past the classic top,
// its counters have 64 bits, so one that stands at 2^32-1 may just pass there: it is full only if it stays there to the
// next reading. Any other counter that stands at its top is full at once.
func (s *counters) saturated(f *counter, value uint64) bool {
	if value == math.MaxUint64 {
		return true
	}
	if f.width == 0 || f.wide {
		return false
	}
	top := uint64(1)<<f.width - 1
	stays := f.atTop
	f.atTop = value == top
	if value > top {
		f.wide = true
		s.ext = s.ext || extended(f.name)
	}
	if s.ext && extended(f.name) {
		return f.atTop && stays
	}
	return f.atTop
}
