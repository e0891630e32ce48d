package bus

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"heeler.dev/schemas/go/heelerv1"
)

// diary is a log that can be read.
type diary struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.Write(p)
}

func (d *diary) count(words string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Count(d.b.String(), words)
}

func (d *diary) log() *slog.Logger { return slog.New(slog.NewTextHandler(d, nil)) }

func TestASubjectThatIsRefusedIsToldOfOnceAndNotRetriedHot(t *testing.T) {
	t.Parallel()
	h := newHub(t, func(o *server.Options) {
		may := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"s.x", "e.x"}}}
		o.Users = []*server.User{{Username: "agent", Password: "p", Permissions: may}, {Username: "admin", Password: "p"}}
		o.NoAuthUser = "admin"
	})
	h.start()
	h.stream()
	l := listen(t, h)
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 100)
	d := &diary{}
	s := newSenderOf(t, Config{Servers: []string{h.url()}, Name: "test", User: "agent", Password: "p"}, sp, d.log())
	until(t, "it connects", s.nc.IsConnected)
	for i := range 50 {
		s.Ring.Put(sample(i))
		s.Ring.Put(Sample{Subject: "s.other", Type: "GpuSample/1", Data: fmt.Appendf(nil, "other %d", i)})
		time.Sleep(10 * time.Millisecond)
	}
	until(t, "the others arrive", func() bool { return slices.Contains(l.all(), "other 49") })
	until(t, "the ring is empty", func() bool { return s.Ring.Len() == 0 })
	total, held := s.nc.denied.count()
	if total == 0 || total > 20 || len(held) != 2 {
		t.Errorf("%d refusals of %v", total, held)
	}
	if n := d.count("the bus refuses a subject"); n != 2 {
		t.Errorf("told of %d times", n)
	}
	if health := s.Health()["bus"]; health.State != heelerv1.CollectorFailing || !strings.Contains(health.Why, "e.x, s.x") {
		t.Errorf("%+v", health)
	}
	if sp.Stats().Waiting != 100 || s.Ring.Dropped() < 40 {
		t.Errorf("%d events wait, %d samples dropped", sp.Stats().Waiting, s.Ring.Dropped())
	}
	// The rights are given, and the server tells nobody: the next probe finds out.
	h.options.Users[0].Permissions = nil
	h.stop()
	h.start()
	h.stream()
	until(t, "events are sent", func() bool { return sp.Stats().Waiting == 0 })
}

func TestARefusedSubjectIsProbed(t *testing.T) {
	t.Parallel()
	d := newDenials(quiet)
	now := time.Now()
	d.held["a"] = &denial{until: now.Add(denialHold)}
	for _, step := range []struct {
		after time.Duration
		allow bool
	}{
		{0, false}, {denialHold - time.Second, false}, {denialHold + time.Second, true},
		{denialHold + 2*time.Second, false}, {denialHold + time.Second + denialReply, true},
		{denialHold + time.Second + denialReply, true},
	} {
		if got := d.allow("a", now.Add(step.after)); got != step.allow {
			t.Errorf("after %s: %v", step.after, got)
		}
	}
	if !d.allow("b", now) {
		t.Error("another is held too")
	}
}

func TestAMissingStreamIsNamed(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.start()
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 3)
	d := &diary{}
	s := newSenderOf(t, Config{Servers: []string{h.url()}, Name: "test"}, sp, d.log())
	until(t, "it is said", func() bool { return d.count("no stream takes e.x; `heeler bus init` makes EVENTS") == 1 })
	if health := s.Health()["bus"]; !strings.Contains(health.Why, "no stream takes e.x") {
		t.Errorf("%+v", health)
	}
	time.Sleep(2 * time.Second)
	if n := d.count("no stream"); n != 1 {
		t.Errorf("said %d times", n)
	}
	h.stream()
	until(t, "all are sent", func() bool { return sp.Stats().Waiting == 0 })
	until(t, "that is said too", func() bool { return d.count("events are taken again") == 1 })
}

func TestAnAccountWithoutJetStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHub(t, func(o *server.Options) { o.JetStream = false })
	h.start()
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 3)
	s := newSender(t, h, sp)
	s.Ring.Put(sample(0))
	until(t, "samples go out", func() bool { return s.Ring.Len() == 0 })
	time.Sleep(time.Second)
	if n := sp.Stats().Waiting; n != 3 {
		t.Errorf("%d wait", n)
	}
	h.stop()
	h.options.JetStream = true
	h.start()
	h.stream()
	until(t, "events too", func() bool { return sp.Stats().Waiting == 0 })
}

func TestWhatTheStreamNeverTakesStopsNothing(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.start()
	st := h.stream()
	c := st.CachedInfo().Config
	c.MaxMsgSize = 500
	js, err := jetstream.New(newSender(t, h, newSpool(t, t.TempDir())).nc.Conn)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the stream takes only small ones", func() bool { _, err := js.UpdateStream(context.Background(), c); return err == nil })
	sp := newSpool(t, t.TempDir())
	if err := sp.Append(EncodeEnvelope("e.x", "KernelEvent/1", "big", make([]byte, 1000))); err != nil {
		t.Fatal(err)
	}
	put(t, sp, 0, 3)
	s := newSender(t, h, sp)
	until(t, "the others are sent", func() bool { return sp.Stats().Waiting == 0 })
	expect(t, h.messages(), 3)
	if s.Refused() != 1 {
		t.Errorf("%d refused", s.Refused())
	}
}

func TestASampleThatIsTooLargeIsCountedAndToldOnce(t *testing.T) {
	t.Parallel()
	h := newHub(t, func(o *server.Options) { o.MaxPayload = 4096 })
	h.start()
	l := listen(t, h)
	d := &diary{}
	s := newSenderOf(t, Config{Servers: []string{h.url()}, Name: "test"}, newSpool(t, t.TempDir()), d.log())
	until(t, "it connects", s.nc.IsConnected)
	for range 3 {
		s.Ring.Put(Sample{Subject: "s.x", Type: "GpuSample/1", Data: make([]byte, 4096-10)})
	}
	s.Ring.Put(sample(0))
	until(t, "the small one arrives", func() bool { return len(l.all()) == 1 })
	if s.Ring.Dropped() != 3 || s.Refused() != 3 || d.count("too large") != 1 || s.connection() != 1 {
		t.Errorf("%d dropped, %d refused, told %d times, %d connections",
			s.Ring.Dropped(), s.Refused(), d.count("too large"), s.connection())
	}
}
