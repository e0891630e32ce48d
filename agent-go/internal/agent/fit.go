package agent

import (
	"cmp"
	"fmt"
	"slices"

	"heeler.dev/schemas/go/heelerv1"
)

const reasonBytes = 128 // what the reason below takes in the message

// shorten leaves out processes of a sample that is larger than the bus takes, those with the least memory first, and
// says so in the sample: what the GPUs do is worth more than who holds them. size is that of the whole sample.
func shorten(s *heelerv1.GpuSample, size, room int) {
	slices.SortStableFunc(s.Procs, func(a, b heelerv1.Proc) int { return cmp.Compare(memoryOf(b), memoryOf(a)) })
	var buffer []byte
	sizes := make([]int, len(s.Procs))
	for i, p := range s.Procs {
		buffer, _ = p.MarshalMsg(buffer[:0])
		sizes[i] = len(buffer)
		size -= len(buffer)
	}
	all, keep := len(s.Procs), 0
	for size += reasonBytes; keep < all && size+sizes[keep] <= room; keep++ {
		size += sizes[keep]
	}
	s.Procs = s.Procs[:keep]
	if s.Absent == nil {
		s.Absent = map[string]string{}
	}
	s.Absent["procs"] = fmt.Sprintf("%d of %d processes; all are more than the bus takes", keep, all)
}

func memoryOf(p heelerv1.Proc) uint64 {
	if p.MemoryBytes == nil {
		return 0
	}
	return *p.MemoryBytes
}
