package bus

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// errNotYet is what the library's own first try gets: it would be made at once and hold the agent up while a server
// does not answer. The next comes from the background, when the route says so.
var errNotYet = errors.New("the first connection waits for its turn")

// dialer connects to any of a name's addresses.
type dialer struct {
	net.Dialer
	open atomic.Bool
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if !d.open.Load() {
		return nil, errNotYet
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	var errs []error
	for _, h := range hosts {
		short, stop := context.WithTimeout(ctx, dialTime/time.Duration(len(hosts)))
		conn, err := d.DialContext(short, network, net.JoinHostPort(h, port))
		stop()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
