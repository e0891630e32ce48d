package agent

import (
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// stamper fills in what all messages of the node share.
type stamper struct {
	cluster, node, boot string
	seq                 atomic.Uint64
}

// newStamper begins to count at the milliseconds since boot, so that an agent that is started again in the same boot
// does not use a number twice: it would have to send a thousand messages a second to catch up with the clock.
func newStamper(cluster, node, boot string) *stamper {
	s := &stamper{cluster: cluster, node: node, boot: boot}
	since, err := hostfs.SinceBoot()
	if err != nil {
		since = time.Duration(time.Now().UnixNano())
	}
	s.seq.Store(uint64(since.Milliseconds()))
	return s
}

// header is the part of a message that the agent fills in.
func header(m heelerv1.Message) *heelerv1.Header {
	switch m := m.(type) {
	case *heelerv1.GpuSample:
		return &m.Header
	case *heelerv1.IbSample:
		return &m.Header
	case *heelerv1.HostSample:
		return &m.Header
	case *heelerv1.SwitchSample:
		return &m.Header
	case *heelerv1.KernelEvent:
		return &m.Header
	case *heelerv1.AgentStatus:
		return &m.Header
	case *heelerv1.Inventory:
		return &m.Header
	default:
		return nil
	}
}

// stamp fills in the header. Kernel events bring a seq of their own, which derives from their cause.
func (s *stamper) stamp(m heelerv1.Message) error {
	h := header(m)
	if h == nil {
		return fmt.Errorf("%s is not an agent's message", m.Type())
	}
	h.V, h.Cluster, h.Node, h.Boot = heelerv1.Version, s.cluster, s.node, s.boot
	if h.TS == 0 {
		h.TS = time.Now().UnixNano()
	}
	if _, ofCause := m.(*heelerv1.KernelEvent); !ofCause && h.Seq == 0 {
		h.Seq = s.seq.Add(1)
	}
	return nil
}

// parcel is a message ready for the bus.
type parcel struct {
	subject, typeHeader, id string
	data                    []byte
}

func (s *stamper) pack(m heelerv1.Message) (parcel, error) {
	if err := s.stamp(m); err != nil {
		return parcel{}, err
	}
	data, err := heelerv1.Encode(m)
	if err != nil {
		return parcel{}, err
	}
	subject, err := m.Subject()
	if err != nil {
		return parcel{}, err
	}
	id, err := heelerv1.MsgID(m.Type(), s.cluster, s.node, s.boot, header(m).Seq)
	return parcel{subject, heelerv1.TypeHeader(m), id, data}, err
}

// outlet sends each message the way of its kind.
type outlet struct {
	*stamper
	pub    *bus.Publisher
	spread time.Duration // samples of the fleet go out over so long after the end of their window
	unkept *atomic.Uint64
}

const (
	spreadShare   = 5 // of the window
	longestSpread = 2 * time.Second
)

// spreadOf is how long after the end of a window this node's samples go out.
func spreadOf(node string, window time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	return time.Duration(h.Sum64() % uint64(min(window/spreadShare, longestSpread)))
}

// emit implements [collector.Emit].
func (o *outlet) emit(m heelerv1.Message) error {
	p, err := o.pack(m)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *heelerv1.KernelEvent:
		err := o.pub.Spool.Append(bus.EncodeEnvelope(p.subject, p.typeHeader, p.id, p.data))
		if err != nil && m.KmsgSeq == nil {
			o.unkept.Add(1)
		}
		return err
	case *heelerv1.GpuSample:
		if room := o.pub.Room(); len(p.data) > room && len(m.Procs) > 0 {
			shorten(m, len(p.data), room)
			if p, err = o.pack(m); err != nil {
				return err
			}
		}
		o.pub.Ring.Put(bus.Sample{
			Subject: p.subject, Type: p.typeHeader, Data: p.data, Due: dueAt(m.TS, o.spread, time.Now()),
		})
	case *heelerv1.IbSample, *heelerv1.HostSample, *heelerv1.SwitchSample:
		o.pub.Ring.Put(bus.Sample{Subject: p.subject, Type: p.typeHeader, Data: p.data})
	default:
		o.pub.SetLatest(m.Type(), p.subject, p.typeHeader, p.id, p.data)
	}
	return nil
}

// dueAt is when a sample goes out: so long after the end of its window, but never later than so long from now, by the
// monotonic clock. The wall clock may have been set since the window ended.
func dueAt(end int64, spread time.Duration, now time.Time) time.Time {
	wait := time.Unix(0, end).Add(spread).Sub(now)
	return now.Add(min(max(wait, 0), spread))
}
