package bus

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// arrivals are when clients connected, in order.
func arrivals(t *testing.T, h *hub) []time.Time {
	t.Helper()
	z, err := h.s.Connz(&server.ConnzOptions{Limit: 10000})
	if err != nil {
		t.Fatal(err)
	}
	var all []time.Time
	for _, c := range z.Conns {
		if strings.HasPrefix(c.Name, "agent") {
			all = append(all, c.Start)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// busiest is the most arrivals within a time.
func busiest(all []time.Time, within time.Duration) int {
	most := 0
	for i := range all {
		n, _ := slices.BinarySearchFunc(all[i:], all[i].Add(within), time.Time.Compare)
		most = max(most, n)
	}
	return most
}

func TestAFleetDoesNotArriveAtOnce(t *testing.T) {
	const fleet = 300
	h := newHub(t, func(o *server.Options) { o.JetStream = false })
	h.start()
	began := time.Now()
	for i := range fleet {
		nc, err := Connect(Config{
			Servers: []string{h.url()}, Name: fmt.Sprint("agent ", i), Jitter: 1500 * time.Millisecond,
		}, func() {}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("to begin took %s", took) // nothing waits for its turn
	}
	check := func(what string) {
		t.Helper()
		until(t, what, func() bool { return len(arrivals(t, h)) == fleet })
		all := arrivals(t, h)
		if most, span := busiest(all, 200*time.Millisecond), all[fleet-1].Sub(all[0]); most > fleet/2 || span < time.Second*7/10 {
			t.Errorf("%s: %d within 0.2 s, all within %s", what, most, span)
		}
	}
	check("all come at first")
	h.stop()
	h.start()
	check("all come back")
	h.stop()
	time.Sleep(2 * time.Second)
	h.start()
	check("all come back after an outage")
}

func TestTheFirstTryWaitsItsTurnAndEachServerIsTried(t *testing.T) {
	dead := []*hub{newHub(t), newHub(t)}
	live := newHub(t, func(o *server.Options) { o.JetStream = false })
	live.start()
	s := newSenderOf(t, Config{
		Servers: []string{dead[0].url(), live.url(), dead[1].url()}, Name: "agent",
	}, newSpool(t, t.TempDir()), quiet)
	until(t, "it finds the one that lives", s.nc.IsConnected)
	dead[1].start()
	live.stop()
	until(t, "it finds another", s.nc.IsConnected)
}

func TestABacklogIsPacedAndWhatIsFreshGoesFirst(t *testing.T) {
	h := newHub(t)
	h.start()
	l := listen(t, h)
	s := newSenderOf(t, Config{Servers: []string{h.url()}, Name: "test"}, newSpool(t, t.TempDir()), quiet,
		func(p *Publisher) {
			p.Ring = NewRing(100, 1<<20)
			for i := range 8 {
				old := sample(i)
				old.Due = time.Now().Add(-time.Duration(60-i) * time.Second)
				p.Ring.Put(old)
			}
		})
	until(t, "it connects", s.nc.IsConnected)
	began := time.Now()
	s.Ring.Put(sample(100))
	until(t, "the fresh one is there", func() bool { return slices.Contains(l.all(), "sample 100") })
	if n := len(l.all()); n > 3 {
		t.Errorf("%d came before it", n-1)
	}
	until(t, "all are there", func() bool { return len(l.all()) == 9 })
	if took := time.Since(began); took < 7*backlogPause/2 {
		t.Errorf("the backlog came within %s", took)
	}
	got := slices.DeleteFunc(l.all(), func(s string) bool { return s == "sample 100" })
	if !slices.IsSorted(got) {
		t.Errorf("out of order: %q", got)
	}
}

func TestTheRingIsBoundedInBytesToo(t *testing.T) {
	r := NewRing(1000, 1000)
	for i := range 50 {
		r.Put(Sample{Data: make([]byte, 100)})
		if s, _, ok := r.Next(time.Now(), true); ok && i%2 == 0 {
			r.Take(s)
		}
	}
	if r.bytes > 1000 || uint64(len(r.queue)+len(r.sent))+r.Dropped() > 50 {
		t.Errorf("%d bytes, %d wait, %d sent, %d dropped", r.bytes, len(r.queue), len(r.sent), r.Dropped())
	}
	r.Restore()
	if r.Len() > 10 {
		t.Errorf("%d after a break", r.Len())
	}
}

func TestASampleDueFarAheadHoldsNothingUp(t *testing.T) {
	r := NewRing(10, 1000)
	now := time.Now()
	r.Put(Sample{Data: []byte("ahead"), Due: now.Add(time.Hour)})
	r.Put(Sample{Data: []byte("now"), Due: now})
	if s, _, ok := r.Next(now, false); !ok || string(s.Data) != "now" {
		t.Errorf("got %q, %v", s.Data, ok)
	}
}

func TestDrainingWhileTheBusIsAwayIsShort(t *testing.T) {
	h := newHub(t)
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 3)
	s := newSender(t, h, sp)
	s.Ring.Put(sample(0))
	began := time.Now()
	s.Drain(t.Context())
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestABacklogOfEventsIsPacedAndInOrder(t *testing.T) {
	h := newHub(t)
	h.start()
	h.stream()
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 600)
	began := time.Now()
	newSender(t, h, sp)
	until(t, "all are sent", func() bool { return sp.Stats().Waiting == 0 })
	if took := time.Since(began); took < 600*eventPause/2 {
		t.Errorf("took %s", took)
	}
	expect(t, h.messages(), 600)
}
