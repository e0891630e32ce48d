package gpu

import (
	"math"

	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// window gathers the readings of one GPU between two multiples of the window's length.
type window struct {
	sum, low, high [meanColumns]float64
	count          [meanColumns]uint64
	last           values
	reasons        uint64
	reasonsSeen    bool
	procs          []nvml.Process
	links          []linkState
}

func newWindow() *window {
	w := &window{}
	w.last.clear()
	return w
}

// add takes a reading. A value that is missing is left out of the mean; it does not count as zero.
func (w *window) add(v *values, procs *processList) {
	for c := range v {
		got := v[c]
		if got.status == nvml.Unread {
			continue
		}
		w.last[c] = got
		if got.status == nvml.OK && column(c) < meanColumns {
			w.average(column(c), got.value)
		}
	}
	if got := v[clockEventReasons]; got.status == nvml.OK {
		bits, _ := got.value.Uint()
		w.reasons |= bits
		w.reasonsSeen = true
	}
	if procs.known {
		w.procs = procs.all
	}
}

func (w *window) average(c column, v heelerv1.Value) {
	f, _ := v.Float()
	if w.count[c] == 0 {
		w.low[c], w.high[c] = f, f
	}
	w.sum[c] += f
	w.low[c], w.high[c] = min(w.low[c], f), max(w.high[c], f)
	w.count[c]++
}

// mean is the mean of a column; a whole number stays one, which is shorter on the wire.
func (w *window) mean(c column) heelerv1.Value {
	if w.count[c] == 0 {
		return heelerv1.Value{}
	}
	return number(w.sum[c] / float64(w.count[c]))
}

func (w *window) lowest(c column) heelerv1.Value {
	if w.count[c] == 0 {
		return heelerv1.Value{}
	}
	return number(w.low[c])
}

func (w *window) highest(c column) heelerv1.Value {
	if w.count[c] == 0 {
		return heelerv1.Value{}
	}
	return number(w.high[c])
}

// final is the last value of a counter or state.
func (w *window) final(c column) heelerv1.Value {
	if c == clockEventReasons {
		if !w.reasonsSeen {
			return heelerv1.Value{}
		}
		return heelerv1.UintValue(w.reasons)
	}
	return w.last[c].value
}

// why is the reason why a column has no value.
func (w *window) why(c column) nvml.Status { return w.last[c].status }

const largestExact = 1 << 53

// number writes a float that is a whole number as one, and others with the seven digits that measurements have at most:
// both are shorter on the wire.
func number(f float64) heelerv1.Value {
	if f == math.Trunc(f) && math.Abs(f) < largestExact {
		return heelerv1.IntValue(int64(f))
	}
	return heelerv1.FloatValue(float64(float32(f)))
}
