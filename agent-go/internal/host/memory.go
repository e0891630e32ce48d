package host

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// memoryNames are the lines of /proc/meminfo that are reported.
var memoryNames = map[string]string{
	"MemTotal":        "total",
	"MemFree":         "free",
	"MemAvailable":    "available",
	"Buffers":         "buffers",
	"Cached":          "cached",
	"SwapTotal":       "swap_total",
	"SwapFree":        "swap_free",
	"SUnreclaim":      "slab_unreclaimable",
	"Dirty":           "dirty",
	"Writeback":       "writeback",
	"HugePages_Total": "hugepages_total",
	"HugePages_Free":  "hugepages_free",
}

const kibibyte = 1024

// parseMemory reads lines like "MemTotal:  65536 kB". Huge pages are counted in pages of Hugepagesize.
func parseMemory(text []byte) (map[string]uint64, error) {
	bytesOf := make(map[string]uint64, len(memoryNames))
	page := uint64(0)
	for line := range bytes.Lines(text) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		to, wanted := memoryNames[string(name)]
		ofPages := string(name) == "Hugepagesize"
		if !ok || !wanted && !ofPages {
			continue
		}
		value, isKB := bytes.CutSuffix(bytes.TrimSpace(rest), []byte(" kB"))
		n, err := number(value)
		if err != nil {
			return nil, err
		}
		if isKB {
			if *n > math.MaxUint64/kibibyte {
				return nil, fmt.Errorf("%w: %s of %d kB", hostfs.ErrFormat, name, *n)
			}
			*n *= kibibyte
		}
		if ofPages {
			page = *n
		} else {
			bytesOf[to] = *n
		}
	}
	if _, ok := bytesOf["total"]; !ok {
		return nil, fmt.Errorf("%w: no MemTotal", hostfs.ErrFormat)
	}
	for _, name := range [...]string{"hugepages_total", "hugepages_free"} {
		pages, ok := bytesOf[name]
		if !ok {
			continue
		}
		if page == 0 || pages > math.MaxUint64/page {
			delete(bytesOf, name)
			continue
		}
		bytesOf[name] = pages * page
	}
	return bytesOf, nil
}

// pressureLine is one line of a file of /proc/pressure.
type pressureLine struct {
	degree string // some or full
	heelerv1.Pressure
}

const (
	percent      = 100
	microseconds = 1e6
)

// parsePressure reads lines like "some avg10=0.12 avg60=0.32 avg300=1.10 total=532302210".
func parsePressure(text []byte) ([]pressureLine, error) {
	var lines []pressureLine
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		p := pressureLine{degree: string(fields[0])}
		if p.degree != "some" && p.degree != "full" {
			return nil, fmt.Errorf("%w: pressure %.40q", hostfs.ErrFormat, fields[0])
		}
		for _, field := range fields[1:] {
			if err := p.take(field); err != nil {
				return nil, err
			}
		}
		lines = append(lines, p)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: no pressure", hostfs.ErrFormat)
	}
	return lines, nil
}

func (p *pressureLine) take(field []byte) error {
	name, text, _ := bytes.Cut(field, []byte("="))
	to, scale, most := &p.TotalS, microseconds, math.Inf(1)
	switch string(name) {
	case "avg10":
		to, scale, most = &p.Avg10Ratio, percent, percent
	case "avg60":
		to, scale, most = &p.Avg60Ratio, percent, percent
	case "avg300":
		to, scale, most = &p.Avg300Ratio, percent, percent
	case "total":
	default:
		return nil // of a newer kernel
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= 0 && v <= most) || math.IsInf(v, 0) {
		return fmt.Errorf("%w: pressure %.40q", hostfs.ErrFormat, field)
	}
	*to = heelerv1.Some(heelerv1.Number(v / scale))
	return nil
}
