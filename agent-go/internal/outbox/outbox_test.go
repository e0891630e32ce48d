package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"heeler.dev/agent-go/internal/bus"
	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/agent-go/internal/spool"
	"heeler.dev/schemas/go/heelerv1"
)

var self = Identity{"north", "gn 1"}

func result(seq uint64, node string) heelerv1.Message {
	return &heelerv1.HealthResult{
		V: 1, Cluster: "north", Node: node, TS: 1, Boot: "b", Seq: seq, Run: "r", Phase: "prolog", Check: "gpu_count",
		Outcome: "ok", Why: "8 of 8",
	}
}

func began(seq uint64) heelerv1.Message {
	m := &heelerv1.PrologEvent{Event: "started", JobID: "81234"}
	m.Header = heelerv1.Header{V: 1, Cluster: "north", Node: "gn 1", TS: 1, Boot: "b", Seq: seq}
	return m
}

// letter is the file of a message, with parts of it exchanged.
func letter(t *testing.T, m heelerv1.Message, seq uint64, change func(*bus.Envelope)) []byte {
	t.Helper()
	data, err := heelerv1.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	subject, err := m.Subject()
	if err != nil {
		t.Fatal(err)
	}
	e := bus.Envelope{Subject: subject, Type: heelerv1.TypeHeader(m), ID: fmt.Sprintf("%s.north.gn 1.b.%d", m.Type(), seq), Data: data}
	if change != nil {
		change(&e)
	}
	b := msgp.AppendMapHeader(nil, 4)
	b = msgp.AppendString(msgp.AppendString(b, "subject"), e.Subject)
	b = msgp.AppendString(msgp.AppendString(b, "type"), e.Type)
	b = msgp.AppendString(msgp.AppendString(b, "id"), e.ID)
	return msgp.AppendBytes(msgp.AppendString(b, "data"), e.Data)
}

func TestOnlyLettersOfThisNodeGoOn(t *testing.T) {
	status := &heelerv1.AgentStatus{Collectors: map[string]heelerv1.CollectorStatus{}}
	status.Header = heelerv1.Header{V: 1, Cluster: "north", Node: "gn 1", TS: 1, Boot: "b", Seq: 1}
	good := letter(t, result(1, "gn 1"), 1, nil)
	if e, err := open(good, self); err != nil || e.Subject != "heeler.v1.north.health.result.gn=201" {
		t.Errorf("%+v, %v", e, err)
	}
	for name, raw := range map[string][]byte{
		"a start of a job":   letter(t, began(1), 1, nil),
		"an id with a token": letter(t, began(1), 1, func(e *bus.Envelope) { e.ID = "PrologEvent.north.gn=201.b.9" }),
	} {
		if _, err := open(raw, self); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, raw := range map[string][]byte{
		"nothing":                  {},
		"rubbish":                  []byte("no map at all"),
		"half of one":              good[:len(good)/2],
		"more than one":            append(append([]byte{}, good...), 0xc0),
		"no data":                  msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "subject"), "a"),
		"a key twice":              msgp.AppendNil(msgp.AppendString(msgp.AppendNil(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "x")), "x")),
		"of another node":          letter(t, result(1, "gn2"), 1, nil),
		"another node's subject":   letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.Subject = "heeler.v1.north.health.result.gn2" }),
		"a drain":                  letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.Subject = "heeler.v1.north.drain.action.gn=201" }),
		"a type not told of so":    letter(t, status, 1, nil),
		"a type that does not fit": letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.Type = "PrologEvent/1" }),
		"a version to come":        letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.Type = "HealthResult/2" }),
		"an id of another type":    letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.ID = "KernelEvent.north.gn=201.b.1" }),
		"an id of another node":    letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.ID = "HealthResult.north.gn2.b.1" }),
		"an id with a new line":    letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.ID += "\r\nX: y" }),
		"no id":                    letter(t, result(1, "gn 1"), 1, func(e *bus.Envelope) { e.ID = "" }),
	} {
		if e, err := open(raw, self); err == nil {
			t.Errorf("%s goes on: %+v", name, e)
		}
	}
}

// box is an outbox whose agent runs.
type box struct {
	t    *testing.T
	path string
	*Source
	n     int
	beats atomic.Int64
	ended chan error
	stop  context.CancelFunc
}

func newBox(t *testing.T, b Bus, change func(*Options)) *box {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox")
	if err := os.Mkdir(path, 0o750); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Path: path, Self: self, MaxFiles: 1000, MaxBytes: 1 << 20, Owners: []uint32{0}, Grace: 100 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	x := &box{t: t, path: path, Source: New(o)}
	x.Bus = b
	return x
}

func (x *box) start() {
	ctx, stop := context.WithCancel(context.Background())
	x.stop, x.ended = stop, make(chan error, 1)
	go func() { x.ended <- x.Run(ctx, func() { x.beats.Add(1) }, nil) }()
	x.t.Cleanup(stop)
}

func (x *box) put(kind string, raw []byte) string {
	x.t.Helper()
	x.n++
	name := fmt.Sprintf("%020d-1-%04d-%s.msg", x.n, x.n, kind)
	x.write(name, raw)
	return name
}

func (x *box) write(name string, raw []byte) {
	x.t.Helper()
	hidden := filepath.Join(x.path, "."+name)
	if err := os.WriteFile(hidden, raw, 0o640); err != nil {
		x.t.Fatal(err)
	}
	if err := os.Rename(hidden, filepath.Join(x.path, name)); err != nil {
		x.t.Fatal(err)
	}
}

func (x *box) files(folder string) []string {
	entries, _ := os.ReadDir(filepath.Join(x.path, folder))
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".msg") {
			names = append(names, e.Name())
		}
	}
	return names
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// testBus is a server that can go away and come back at the same place.
type testBus struct {
	t       *testing.T
	options server.Options
	server  *server.Server
}

func newBus(t *testing.T) *testBus {
	b := &testBus{t: t, options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	b.up()
	nc, err := nats.Connect(b.server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{"heeler.v1.*.health.*.*", "heeler.v1.*.prolog.event.*"}, MaxMsgSize: 100_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *testBus) up() {
	var err error
	if b.server, err = server.NewServer(&b.options); err != nil {
		b.t.Fatal(err)
	}
	b.server.Start()
	if !b.server.ReadyForConnections(5 * time.Second) {
		b.t.Fatal("server does not start")
	}
	b.options.Port = b.server.Addr().(*net.TCPAddr).Port
	b.t.Cleanup(b.server.Shutdown)
}

// publisher is a connection of an agent.
func (b *testBus) publisher() *bus.Publisher {
	log := slog.New(slog.DiscardHandler)
	url := fmt.Sprintf("nats://127.0.0.1:%d", b.options.Port)
	nc, err := bus.Connect(bus.Config{Servers: []string{url}, Name: "test"}, func() {}, log)
	if err != nil {
		b.t.Fatal(err)
	}
	sp := spool.Open(b.t.TempDir(), spool.Options{})
	pub, err := bus.NewPublisher(nc, bus.NewRing(10, 1<<20), sp, log)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		nc.Close()
		_ = sp.Close()
	})
	return pub
}

// ids are those of all messages that the stream has.
func (b *testBus) ids() []string {
	nc, err := nats.Connect(b.server.ClientURL())
	if err != nil {
		b.t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	stream, err := js.Stream(context.Background(), "EVENTS")
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	last := stream.CachedInfo().State.LastSeq
	for seq := stream.CachedInfo().State.FirstSeq; seq <= last; seq++ {
		m, err := stream.GetMsg(context.Background(), seq)
		if err != nil {
			b.t.Fatal(err)
		}
		if _, err := heelerv1.DecodeAs(m.Header.Get(heelerv1.HeaderType), m.Data); err != nil {
			b.t.Error(err)
		}
		all = append(all, m.Header.Get(heelerv1.HeaderMsgID))
	}
	return all
}

func TestLettersArriveOnceAndInOrderThoughTheBusWasAway(t *testing.T) {
	b := newBus(t)
	pub := b.publisher()
	x := newBox(t, pub, nil)
	until(t, "connection", func() bool { _, up := pub.Connection(); return up })
	b.server.Shutdown()
	x.start()
	var want []string
	for seq := range uint64(100) {
		x.put("HealthResult", letter(t, result(seq, "gn 1"), seq, nil))
		want = append(want, fmt.Sprintf("HealthResult.north.gn 1.b.%d", seq))
	}
	until(t, "they wait", func() bool { return x.Counts()["waiting"] == 100 })
	if n := len(x.files("")); n != 100 {
		t.Fatalf("%d files while the bus is away", n)
	}
	b.up()
	until(t, "the folder is empty", func() bool { return len(x.files("")) == 0 })
	if got := b.ids(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d messages: %v", len(got), got)
	}
	if c := x.Counts(); c["sent"] < 100 || c["bad"]+c["dropped"]+c["refused"] != 0 {
		t.Errorf("%v", c)
	}
}

func TestWhatWasTakenJustBeforeTheBusWentIsSaidAgainUnderItsID(t *testing.T) {
	b := newBus(t)
	x := newBox(t, b.publisher(), func(o *Options) { o.Grace = time.Hour })
	x.start()
	x.put("HealthResult", letter(t, result(1, "gn 1"), 1, nil))
	until(t, "it is sent", func() bool { return x.Counts()["sent"] == 1 })
	b.server.Shutdown()
	b.up()
	until(t, "it is sent again", func() bool { return x.Counts()["sent"] == 2 })
	x.stop()
	if err := <-x.ended; err != nil {
		t.Fatal(err)
	}
	if got := b.ids(); len(got) != 1 || len(x.files("")) != 0 {
		t.Errorf("%v, left: %v", got, x.files(""))
	}
}

func TestTheStartOfAJobGoesAtOnceAndBeforeABacklog(t *testing.T) {
	b := newBus(t)
	x := newBox(t, b.publisher(), nil)
	for seq := range uint64(300) {
		x.put("HealthResult", letter(t, result(seq, "gn 1"), seq, nil))
	}
	x.put("PrologEvent", letter(t, began(1000), 1000, nil))
	x.start()
	until(t, "all are sent", func() bool { return x.Counts()["sent"] == 301 })
	if got := b.ids(); got[0] != "PrologEvent.north.gn 1.b.1000" {
		t.Errorf("first comes %s", got[0])
	}
	until(t, "the folder is empty", func() bool { return len(x.files("")) == 0 })
	quickest := time.Hour
	for seq := range uint64(5) {
		time.Sleep(200 * time.Millisecond)
		before := time.Now()
		x.put("PrologEvent", letter(t, began(seq), seq, nil))
		until(t, "it is sent", func() bool { return x.Counts()["sent"] == 302+seq })
		quickest = min(quickest, time.Since(before))
	}
	if quickest > idleTime/2 { // a look now and then would take half a second
		t.Errorf("the quickest of five took %s", quickest)
	}
}

func TestBadFilesAreSetAsideAndHoldNothingUp(t *testing.T) {
	b := newBus(t)
	x := newBox(t, b.publisher(), nil)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	good := letter(t, result(1, "gn 1"), 1, nil)
	if err := os.WriteFile(elsewhere, good, 0o600); err != nil {
		t.Fatal(err)
	}
	x.put("HealthResult", []byte("rubbish"))
	x.put("HealthResult", letter(t, result(2, "gn2"), 2, nil))
	x.put("HealthResult", nil)
	large := result(3, "gn 1").(*heelerv1.HealthResult)
	large.Why = strings.Repeat("x", 200_000) // more than the stream takes
	x.put("HealthResult", letter(t, large, 3, nil))
	open := x.put("HealthResult", good)
	for _, err := range []error{
		os.Symlink(elsewhere, filepath.Join(x.path, "3-link.msg")), os.Link(elsewhere, filepath.Join(x.path, "3-hard.msg")),
		os.Chmod(filepath.Join(x.path, open), 0o666), os.Mkdir(filepath.Join(x.path, "4-folder.msg"), 0o700),
		os.WriteFile(filepath.Join(x.path, ".hidden.msg"), nil, 0o600), os.WriteFile(filepath.Join(x.path, "other"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	x.put("HealthRun", letter(t, result(9, "gn 1"), 9, nil))
	x.start()
	until(t, "the good one is through, the others aside", func() bool {
		return len(x.files("")) == 1 && x.Counts()["sent"] == 1 // 1: the hidden one
	})
	if got := x.files("bad"); len(got) != 8 {
		t.Errorf("aside: %v", got)
	}
	if c := x.Counts(); c["bad"] != 4 || c["refused"] != 4 {
		t.Errorf("%v", c)
	}
	if got := b.ids(); len(got) != 1 || got[0] != "HealthResult.north.gn 1.b.9" {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(x.path, "other")); err != nil {
		t.Error(err)
	}
}

func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	b := newBus(t)
	x := newBox(t, b.publisher(), func(o *Options) { o.Owners = []uint32{4321} })
	stranger := x.put("HealthResult", letter(t, result(1, "gn 1"), 1, nil))
	known := x.put("HealthResult", letter(t, result(2, "gn 1"), 2, nil))
	if err := errors.Join(os.Chown(filepath.Join(x.path, stranger), 1234, 0), os.Chown(filepath.Join(x.path, known), 4321, 0)); err != nil {
		t.Fatal(err)
	}
	x.start()
	until(t, "both are gone", func() bool { return len(x.files("")) == 0 })
	if c := x.Counts(); c["refused"] != 1 || c["sent"] != 1 || len(x.files("bad")) != 1 {
		t.Errorf("%v", c)
	}
}

func TestWithoutRoomTheOldestResultsGoAndStartsOfJobsStay(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"files": func(o *Options) { o.MaxFiles = 5 },
		"bytes": func(o *Options) { o.MaxBytes = int64(6 * len(letter(t, result(1000, "gn 1"), 1000, nil))) },
	} {
		x := newBox(t, away{}, change)
		for seq := range uint64(3) {
			x.put("PrologEvent", letter(t, began(1000+seq), 1000+seq, nil))
		}
		for seq := range uint64(20) {
			x.put("HealthResult", letter(t, result(1000+seq, "gn 1"), 1000+seq, nil))
		}
		x.start()
		until(t, name+": some are dropped", func() bool { return x.Counts()["dropped"] > 0 && x.beats.Load() > 0 })
		left := x.files("")
		if uint64(len(left))+x.Counts()["dropped"] != 23 || len(left) < 5 || len(left) > 7 {
			t.Errorf("%s: %d left, %v", name, len(left), x.Counts())
		}
		if !urgent(left[0]) || !urgent(left[2]) || !strings.HasPrefix(left[len(left)-1], fmt.Sprintf("%020d", 23)) {
			t.Errorf("%s: left are %v", name, left)
		}
	}
}

func TestBadFilesAreBounded(t *testing.T) {
	x := newBox(t, here{}, nil)
	for range mostBad + 30 {
		x.put("HealthResult", []byte("rubbish"))
	}
	x.start()
	until(t, "all are looked at", func() bool { return x.Counts()["bad"] == mostBad+30 && len(x.files("")) == 0 })
	until(t, "the oldest went", func() bool { return len(x.files("bad")) == mostBad })
	if first := x.files("bad")[0]; !strings.HasPrefix(first, fmt.Sprintf("%020d", 31)) {
		t.Errorf("the first is %s", first)
	}
}

// away is a bus that can't be reached, here one that is there and takes nothing.
type (
	away struct{}
	here struct{}
)

func (away) Connection() (uint64, bool)                      { return 0, false }
func (away) Deliver(context.Context, []bus.Envelope) []error { panic("the bus is away") }
func (here) Connection() (uint64, bool)                      { return 1, true }
func (here) Deliver(_ context.Context, events []bus.Envelope) []error {
	return slices.Repeat([]error{errors.New("no stream takes it")}, len(events))
}

func TestABusThatTakesNothingIsToldOfAndNothingIsLost(t *testing.T) {
	x := newBox(t, here{}, nil)
	x.put("HealthResult", letter(t, result(1, "gn 1"), 1, nil))
	x.start()
	if err := <-x.ended; err == nil || !strings.Contains(err.Error(), "no stream takes it") {
		t.Errorf("%v", err)
	}
	if len(x.files("")) != 1 {
		t.Error("it is gone")
	}
}

func TestAFolderThatIsNotThereIsAbsentAndOneForEverybodyIsRefused(t *testing.T) {
	x := newBox(t, away{}, nil)
	if err := os.Chmod(x.path, 0o777); err != nil {
		t.Fatal(err)
	}
	x.start()
	if err := <-x.ended; err == nil || errors.Is(err, collector.ErrAbsent) {
		t.Errorf("for everybody: %v", err)
	}
	if err := os.Remove(x.path); err != nil {
		t.Fatal(err)
	}
	x.start()
	if err := <-x.ended; !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("not there: %v", err)
	}
	link := x.path + "-link"
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	x.Path = link
	x.start()
	if err := <-x.ended; err == nil {
		t.Error("a link is followed")
	}
}

func TestAFolderThatIsMadeAnewIsOpenedAnew(t *testing.T) {
	x := newBox(t, away{}, nil)
	x.start()
	until(t, "it runs", func() bool { return x.beats.Load() > 0 })
	if err := errors.Join(os.Remove(x.path), os.Mkdir(x.path, 0o750)); err != nil {
		t.Fatal(err)
	}
	if err := <-x.ended; err == nil {
		t.Error("it goes on with a folder that nobody sees")
	}
}
