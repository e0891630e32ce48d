package host

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// kinds are the columns of the cpu line of /proc/stat that add up to all time. Two follow, guest and guest_nice, which
// are parts of user and nice.
var kinds = [...]string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"}

const (
	guest       = len(kinds)
	guestNice   = guest + 1
	columnCount = guestNice + 1
	fewest      = 4 // columns that any kernel has
)

// stat is what is used of /proc/stat.
type stat struct {
	times            [columnCount]uint64
	columns          int
	cpus             uint64
	running, blocked *uint64
}

func parseStat(text []byte) (*stat, error) {
	s := &stat{}
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(" "))
		var err error
		switch {
		case string(name) == "cpu":
			err = s.sum(rest)
		case bytes.HasPrefix(name, []byte("cpu")):
			s.cpus++
		case string(name) == "procs_running":
			s.running, err = number(rest)
		case string(name) == "procs_blocked":
			s.blocked, err = number(rest)
		}
		if err != nil {
			return nil, err
		}
	}
	if s.columns == 0 || s.cpus == 0 {
		return nil, fmt.Errorf("%w: no line of CPU times", hostfs.ErrFormat)
	}
	return s, nil
}

func (s *stat) sum(rest []byte) error {
	for field := range bytes.FieldsSeq(rest) {
		if s.columns == columnCount {
			break
		}
		v, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: CPU time %.40q", hostfs.ErrFormat, field)
		}
		s.times[s.columns] = v
		s.columns++
	}
	if s.columns < fewest {
		return fmt.Errorf("%w: %d CPU times", hostfs.ErrFormat, s.columns)
	}
	return nil
}

func number(text []byte) (*uint64, error) {
	text = bytes.TrimSpace(text)
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: number %.40q", hostfs.ErrFormat, text)
	}
	return &v, nil
}

// ratios are the shares of the time between two readings. A kind that went backwards, as iowait may, is left out: how
// much it was is not known. It is nil when no time has passed.
func ratios(before, after *stat) map[string]heelerv1.Number {
	columns := min(before.columns, after.columns)
	var grown [columnCount]uint64
	var total float64
	for i := range columns {
		if after.times[i] > before.times[i] {
			grown[i] = after.times[i] - before.times[i]
		}
		if i < len(kinds) {
			total += float64(grown[i])
		}
	}
	if total == 0 {
		return nil
	}
	shares := make(map[string]heelerv1.Number, len(kinds)+1)
	backwards := func(i int) bool { return after.times[i] < before.times[i] }
	for i := range min(columns, len(kinds)) {
		if !backwards(i) {
			shares[kinds[i]] = heelerv1.Number(float64(grown[i]) / total)
		}
	}
	switch {
	case columns > guestNice && !backwards(guest) && !backwards(guestNice):
		shares["guest"] = share(float64(grown[guest])+float64(grown[guestNice]), total)
	case columns == guestNice && !backwards(guest):
		shares["guest"] = share(float64(grown[guest]), total)
	}
	return shares
}

// share is at most 1: what is a part of another column is not always counted at the same moment.
func share(part, total float64) heelerv1.Number { return heelerv1.Number(min(part/total, 1)) }

// parseLoad reads "0.20 0.18 0.12 1/80 11206".
func parseLoad(text []byte) ([3]heelerv1.Number, error) {
	var load [3]heelerv1.Number
	fields := bytes.Fields(text)
	if len(fields) < len(load) {
		return load, fmt.Errorf("%w: load %.40q", hostfs.ErrFormat, text)
	}
	for i := range load {
		v, err := strconv.ParseFloat(string(fields[i]), 64)
		if err != nil || !(v >= 0 && v < math.MaxUint32) {
			return [3]heelerv1.Number{}, fmt.Errorf("%w: load %.40q", hostfs.ErrFormat, fields[i])
		}
		load[i] = heelerv1.Number(v)
	}
	return load, nil
}
