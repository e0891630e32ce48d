// Package bus carries messages from the agent to NATS: samples through a bounded ring by plain publish, events from the
// spool with JetStream's acknowledgement, and the newest status and inventory until they are acknowledged.
package bus

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Config says how to reach the bus.
type Config struct {
	Servers     []string
	Name        string
	InboxPrefix string
	// Jitter is how long the first connection waits at most, so that a fleet does not arrive at once.
	Jitter time.Duration
	// NoDiscovery keeps to the servers named, where the others of a cluster cannot be reached from the nodes.
	NoDiscovery bool
	// One of these at most: a creds file, a file with an NKEY seed, user and password, a token. Files are read at each
	// try to connect.
	Creds        string
	NKey         string
	User         string
	Password     string
	PasswordFile string
	Token        string
	TokenFile    string
	// TLS files; all may be empty.
	CA, Cert, Key string
	// TLSFirst begins with the handshake, for servers that expect it.
	TLSFirst bool
}

const (
	dialTime     = 5 * time.Second
	pingTime     = time.Minute // the publisher asks more often
	missedPings  = 2
	firstBackoff = 250 * time.Millisecond
	firstSpread  = 2 * time.Second // over which agents that lost a server at once try the next
	longestWait  = 30 * time.Second
)

// Conn is a connection that comes back for ever.
type Conn struct {
	*nats.Conn
	denied *denials
}

// Connect returns a connection that is made in the background and comes back for ever, also after the servers refused
// the credentials, or these or the certificates could not be read. closed hears when the library gave up in spite of
// that.
func Connect(c Config, closed func(), log *slog.Logger) (*Conn, error) {
	say := &outages{log: log, said: map[string]bool{}}
	denied := newDenials(log)
	d := &dialer{}
	r := &route{jitter: c.Jitter, dialer: d}
	var made atomic.Pointer[nats.Conn]
	next := func(servers []nats.Server, _ nats.ServerInfo) (*nats.Server, time.Duration) {
		c.renewKey(made.Load())
		return r.next(servers)
	}
	connected := func(nc *nats.Conn) {
		r.arrived()
		denied.forget()
		say.well(nc.ConnectedUrlRedacted())
	}
	options := []nats.Option{
		nats.Name(c.Name), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), nats.ReconnectToServer(next), nats.ReconnectBufSize(-1),
		nats.Timeout(dialTime), nats.PingInterval(pingTime), nats.MaxPingsOutstanding(missedPings),
		nats.SetCustomDialer(d), nats.SkipHostLookup(),
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { say.away(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { say.away(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !denied.heard(err) {
				say.trouble(err)
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { closed() }),
	}
	if c.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.NoDiscovery {
		options = append(options, nats.IgnoreDiscoveredServers())
	}
	options = append(options, c.identity(say)...)
	nc, err := nats.Connect(strings.Join(c.Servers, ","), append(options, c.tls()...)...)
	made.Store(nc)
	return &Conn{nc, denied}, err
}

// route says which server to try next, and when. Each try waits a time of its own, also the first, so that a fleet
// that starts or loses a server does not come all at once.
type route struct {
	jitter time.Duration
	dialer *dialer

	mu    sync.Mutex
	begun bool
	tries int
	last  string
}

func (r *route) next(servers []nats.Server) (*nats.Server, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := 0
	for i := range servers {
		if servers[i].URL.String() == r.last {
			at = (i + 1) % len(servers)
		}
	}
	r.last = servers[at].URL.String()
	round := r.tries / len(servers)
	if !r.begun {
		r.begun = true
		r.dialer.open.Store(true)
		return &servers[at], upTo(r.jitter)
	}
	r.tries++
	return &servers[at], backoff(max(firstBackoff, min(firstSpread, r.jitter)), round)
}

func (r *route) arrived() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries = 0
}

func upTo(bound time.Duration) time.Duration {
	if bound <= 0 {
		return 0
	}
	return rand.N(bound)
}

// backoff is how long to wait in the given round of tries at all servers: any time up to a bound that doubles.
func backoff(base time.Duration, round int) time.Duration {
	bound := longestWait
	if round < 8 {
		bound = min(longestWait, base<<round)
	}
	return rand.N(bound) + 10*time.Millisecond
}

// outages logs one line when the bus goes away and one when it is back.
type outages struct {
	log  *slog.Logger
	mu   sync.Mutex
	gone bool
	said map[string]bool // other troubles since the last connection
}

func (o *outages) well(url string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = false
	clear(o.said)
	o.log.Info("connected to the bus", "server", url)
}

func (o *outages) away(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone && err != nil && !errors.Is(err, errNotYet) { // without an error it was us who closed
		o.gone = true
		o.log.Warn("the bus is away; trying on", "error", err)
	}
}

const mostSaid = 16

func (o *outages) trouble(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if text := err.Error(); !o.gone && !o.said[text] && len(o.said) < mostSaid {
		o.said[text] = true
		o.log.Warn("the bus reports trouble", "error", err)
	}
}
