package bus

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// cluster is three servers that keep a stream together.
func cluster(t *testing.T) []*hub {
	t.Helper()
	var routes []*url.URL
	ports := []int{freePort(t), freePort(t), freePort(t)}
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var all []*hub
	for i, port := range ports {
		all = append(all, newHub(t, func(o *server.Options) {
			o.ServerName, o.Routes = fmt.Sprint("s", i), routes
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}
		}))
	}
	for _, h := range all {
		h.start()
	}
	until(t, "the cluster has a leader", func() bool {
		return slices.ContainsFunc(all, func(h *hub) bool { return h.s.JetStreamIsLeader() })
	})
	return all
}

func urls(hubs []*hub) []string {
	var all []string
	for _, h := range hubs {
		all = append(all, h.url())
	}
	return all
}

// replicated makes the stream of events on three servers.
func replicated(t *testing.T, hubs []*hub) jetstream.Stream {
	t.Helper()
	nc, err := nats.Connect(urls(hubs)[0], nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var st jetstream.Stream
	until(t, "the stream is made", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		st, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "EVENTS", Subjects: []string{"e.>"}, Duplicates: time.Hour, Replicas: 3,
		})
		return err == nil
	})
	return st
}

func TestAClusterThatLosesTheServerOfTheAgentAndTheLeaderLosesNoEvent(t *testing.T) {
	hubs := cluster(t)
	st := replicated(t, hubs)
	sp := newSpool(t, t.TempDir())
	dead := newHub(t) // never starts
	s := newSenderOf(t, Config{Servers: append([]string{dead.url()}, urls(hubs)...), Name: "test"}, sp, quiet)
	put(t, sp, 0, 20)
	until(t, "the first are sent", func() bool { return sp.Stats().Waiting == 0 })
	kill := func(name func() string) *hub {
		t.Helper()
		i := slices.IndexFunc(hubs, func(h *hub) bool { return h.options.ServerName == name() })
		hubs[i].stop()
		return hubs[i]
	}
	first := kill(func() string { return s.nc.ConnectedServerName() })
	put(t, sp, 20, 40)
	until(t, "those of the time without it are sent", func() bool { return sp.Stats().Waiting == 0 })
	first.start()
	until(t, "it is back in the stream", func() bool {
		info, err := st.Info(context.Background())
		return err == nil && info.Cluster != nil && info.Cluster.Leader != "" &&
			!slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
	})
	info, err := st.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	put(t, sp, 40, 60)
	kill(func() string { return info.Cluster.Leader })
	put(t, sp, 60, 80)
	until(t, "all are sent", func() bool { return sp.Stats().Waiting == 0 })
	var got []string
	for seq := uint64(1); seq <= 80; seq++ {
		m, err := st.GetMsg(context.Background(), seq)
		if err != nil {
			t.Fatalf("message %d: %v", seq, err)
		}
		got = append(got, string(m.Data))
	}
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != 80 {
		t.Errorf("%d different events", len(got))
	}
	if info, err := st.Info(context.Background()); err != nil || info.State.Msgs != 80 {
		t.Errorf("the stream holds %+v, %v", info, err)
	}
}

func TestServersOfAClusterAreLearnt(t *testing.T) {
	hubs := cluster(t)
	s := newSenderOf(t, Config{Servers: urls(hubs)[:1], Name: "test"}, newSpool(t, t.TempDir()), quiet)
	only := newSenderOf(t, Config{Servers: urls(hubs)[:1], Name: "test", NoDiscovery: true}, newSpool(t, t.TempDir()), quiet)
	until(t, "both connect and one learns", func() bool { return len(s.nc.Servers()) == 3 && only.nc.IsConnected() })
	if n := len(only.nc.Servers()); n != 1 {
		t.Errorf("the other knows %d", n)
	}
	hubs[0].stop()
	until(t, "it goes to another", func() bool { return s.nc.ConnectedUrl() != hubs[0].url() && s.nc.IsConnected() })
	until(t, "the other has noticed", func() bool { return !only.nc.IsConnected() })
	time.Sleep(time.Second)
	if only.nc.IsConnected() {
		t.Error("the other did too")
	}
}

// relay passes bytes on until it freezes: connections stay, nothing moves.
type relay struct {
	net.Listener
	frozen atomic.Bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go r.pass(in, out)
			go r.pass(out, in)
		}
	}()
	return r
}

func (r *relay) pass(from, to net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if r.frozen.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// listener gathers the samples that reach a server.
type listener struct {
	mu  sync.Mutex
	got []string
}

func listen(t *testing.T, h *hub) *listener {
	t.Helper()
	l := &listener{}
	nc, err := nats.Connect(h.url(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("s.>", func(m *nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.got = append(l.got, string(m.Data))
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *listener) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

func sample(i int) Sample {
	return Sample{Subject: "s.x", Type: "GpuSample/1", Data: fmt.Appendf(nil, "sample %d", i)}
}

func TestSamplesSentToAServerThatHangsAreSentAgain(t *testing.T) {
	h := newHub(t)
	h.start()
	l := listen(t, h)
	hangs := newRelay(t, fmt.Sprintf("127.0.0.1:%d", h.options.Port))
	s := newSenderOf(t, Config{Servers: []string{"nats://" + hangs.Addr().String()}, Name: "test"},
		newSpool(t, t.TempDir()), quiet, func(p *Publisher) {
			p.confirmEvery, p.answerWithin = 100*time.Millisecond, 200*time.Millisecond
		})
	s.Ring.Put(sample(0))
	until(t, "the first is there and confirmed", func() bool {
		_, open := s.Ring.Mark()
		return len(l.all()) == 1 && !open
	})
	hangs.frozen.Store(true)
	s.Ring.Put(sample(1))
	until(t, "the second goes into the void", func() bool { return s.Ring.Len() == 0 })
	s.Ring.Put(sample(2))
	time.Sleep(100 * time.Millisecond)
	hangs.frozen.Store(false)
	until(t, "both arrive", func() bool { return slices.Contains(l.all(), "sample 1") && slices.Contains(l.all(), "sample 2") })
	until(t, "all is confirmed", func() bool { _, open := s.Ring.Mark(); return !open && s.Ring.Len() == 0 })
	if got := l.all(); slices.Index(got, "sample 1") > slices.Index(got, "sample 2") || s.Ring.Dropped() != 0 {
		t.Errorf("got %q, %d dropped", got, s.Ring.Dropped())
	}
}
