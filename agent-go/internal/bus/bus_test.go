package bus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"heeler.dev/agent-go/internal/spool"
)

var quiet = slog.New(slog.DiscardHandler)

// hub is a server that can go away and come back at the same place.
type hub struct {
	t       *testing.T
	options server.Options
	s       *server.Server
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func newHub(t *testing.T, change ...func(*server.Options)) *hub {
	t.Helper()
	h := &hub{t: t, options: server.Options{
		Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	for _, f := range change {
		f(&h.options)
	}
	return h
}

func (h *hub) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", h.options.Port) }

func (h *hub) start() {
	h.t.Helper()
	options := h.options
	s, err := server.NewServer(&options)
	if err != nil {
		h.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(5 * time.Second) {
		h.t.Fatal("server does not start")
	}
	h.s = s
	h.t.Cleanup(s.Shutdown)
}

func (h *hub) stop() {
	h.s.Shutdown()
	h.s.WaitForShutdown()
}

// stream makes the stream of events and returns it.
func (h *hub) stream() jetstream.Stream {
	h.t.Helper()
	nc, err := nats.Connect(h.url())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		h.t.Fatal(err)
	}
	st, err := js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{"e.>"}, Duplicates: time.Hour,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

func (h *hub) messages() []string {
	h.t.Helper()
	st := h.stream()
	info, err := st.Info(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := st.GetMsg(context.Background(), seq)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, string(m.Data))
	}
	return all
}

// sender is a publisher that runs until it is stopped.
type sender struct {
	*Publisher
	nc   *Conn
	stop func()
}

func newSender(t *testing.T, h *hub, sp *spool.Spool, change ...func(*Config)) *sender {
	t.Helper()
	c := Config{Servers: []string{h.url()}, Name: "test"}
	for _, f := range change {
		f(&c)
	}
	return newSenderOf(t, c, sp, quiet)
}

// newSenderOf is newSender for any configuration and log.
func newSenderOf(t *testing.T, c Config, sp *spool.Spool, log *slog.Logger, set ...func(*Publisher)) *sender {
	t.Helper()
	nc, err := Connect(c, func() {}, log)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(nc, NewRing(5, 1<<20), sp, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range set {
		f(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	s := &sender{p, nc, func() {
		cancel()
		nc.Close()
		<-done
	}}
	t.Cleanup(s.stop)
	return s
}

func newSpool(t *testing.T, dir string) *spool.Spool {
	t.Helper()
	sp := spool.Open(dir, spool.Options{Grace: 50 * time.Millisecond})
	t.Cleanup(func() { _ = sp.Close() })
	return sp
}

func put(t *testing.T, sp *spool.Spool, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		name := fmt.Sprint("event ", i)
		if err := sp.Append(EncodeEnvelope("e.x", "KernelEvent/1", fmt.Sprint("id.", i), []byte(name))); err != nil {
			t.Fatal(err)
		}
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func expect(t *testing.T, got []string, n int) {
	t.Helper()
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprint("event ", i)
	}
	if !slices.Equal(got, want) {
		t.Errorf("stream holds %d events %q, want %d", len(got), got, n)
	}
}

func TestEventsSurviveRestartsOfBothSides(t *testing.T) {
	h := newHub(t)
	dir := t.TempDir()
	sp := newSpool(t, dir)
	first := newSender(t, h, sp) // before there is a server
	put(t, sp, 0, 10)
	h.start()
	h.stream()
	until(t, "the first are sent", func() bool { return sp.Stats().Waiting == 0 })
	h.stop()
	put(t, sp, 10, 20)
	first.stop() // the agent ends while the server is away
	_ = sp.Close()
	sp = newSpool(t, dir)
	put(t, sp, 20, 30)
	newSender(t, h, sp)
	h.start()
	until(t, "all are sent", func() bool { return sp.Stats().Waiting == 0 })
	expect(t, h.messages(), 30)
	until(t, "the spool is empty", func() bool { return sp.Stats().Bytes == 0 })
}

func TestADuplicateCountsAsSent(t *testing.T) {
	h := newHub(t)
	h.start()
	h.stream()
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 3)
	put(t, sp, 0, 3)
	newSender(t, h, sp)
	until(t, "all are sent", func() bool { return sp.Stats().Waiting == 0 })
	expect(t, h.messages(), 3)
}

func TestWithoutAStreamEventsWait(t *testing.T) {
	h := newHub(t)
	h.start()
	sp := newSpool(t, t.TempDir())
	put(t, sp, 0, 3)
	newSender(t, h, sp)
	time.Sleep(300 * time.Millisecond)
	if n := sp.Stats().Waiting; n != 3 {
		t.Fatalf("%d wait", n)
	}
	h.stream()
	until(t, "all are sent", func() bool { return sp.Stats().Waiting == 0 })
	got := h.messages()
	slices.Sort(got) // some may have been sent before others that failed
	expect(t, got, 3)
}

func TestAnEventThatIsTooLargeDoesNotStopTheOthers(t *testing.T) {
	h := newHub(t, func(o *server.Options) { o.MaxPayload = 4096 })
	h.start()
	h.stream()
	sp := newSpool(t, t.TempDir())
	if err := sp.Append(EncodeEnvelope("e.x", "KernelEvent/1", "big", make([]byte, 4096-10))); err != nil {
		t.Fatal(err)
	}
	put(t, sp, 0, 2)
	s := newSender(t, h, sp)
	until(t, "the others are sent", func() bool { return sp.Stats().Waiting == 0 })
	expect(t, h.messages(), 2)
	if s.Refused() != 1 || !s.nc.IsConnected() || s.connection() != 1 {
		t.Errorf("%d refused, connected %v", s.Refused(), s.nc.IsConnected())
	}
}

func TestTheRingDropsTheOldestAndCounts(t *testing.T) {
	h := newHub(t)
	s := newSender(t, h, newSpool(t, t.TempDir()))
	for i := range 12 {
		s.Ring.Put(Sample{Subject: "s.x", Type: "GpuSample/1", Data: fmt.Appendf(nil, "sample %d", i)})
	}
	if s.Ring.Dropped() != 7 || s.Ring.Len() != 5 {
		t.Fatalf("%d dropped, %d kept", s.Ring.Dropped(), s.Ring.Len())
	}
	h.start()
	nc, err := nats.Connect(h.url())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("s.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := 7; i < 12; i++ {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Skip("the samples went out before the test could listen")
		}
		if want := fmt.Sprint("sample ", i); string(m.Data) != want || m.Header.Get("Heeler-Type") != "GpuSample/1" {
			t.Errorf("got %q, want %q", m.Data, want)
		}
	}
}

func TestTheNewestStatusIsSentWhenTheBusIsBack(t *testing.T) {
	h := newHub(t)
	s := newSender(t, h, newSpool(t, t.TempDir()))
	for i := range 3 {
		s.SetLatest("AgentStatus", "e.status", "AgentStatus/1", fmt.Sprint("s.", i), fmt.Appendf(nil, "status %d", i))
	}
	h.start()
	h.stream()
	until(t, "it is there", func() bool { return slices.Equal(h.messages(), []string{"status 2"}) })
}

func TestBackoffIsSpreadAndBounded(t *testing.T) {
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := backoff(firstBackoff, 20)
		low, high = min(low, d), max(high, d)
	}
	if low > 5*time.Second || high < 25*time.Second || high > 31*time.Second {
		t.Errorf("between %s and %s", low, high)
	}
	if d := backoff(firstBackoff, 0); d > time.Second {
		t.Errorf("first %s", d)
	}
}

func TestEnvelopes(t *testing.T) {
	b := EncodeEnvelope("a.b", "T/1", "id", []byte("data"))
	e, err := DecodeEnvelope(b)
	if err != nil || e.Subject != "a.b" || e.Type != "T/1" || e.ID != "id" || string(e.Data) != "data" {
		t.Errorf("got %+v, %v", e, err)
	}
	for i := range b {
		if _, err := DecodeEnvelope(b[:i]); err == nil {
			t.Errorf("%d bytes are taken", i)
		}
	}
}
