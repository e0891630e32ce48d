package bus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// authority is a certificate authority of the test's own.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	a.cert, a.key, a.pem, _ = sign509(t, template, nil)
	return a
}

// sign509 makes a key and its certificate, by its own key without an authority.
func sign509(t *testing.T, template *x509.Certificate, a *authority) (*x509.Certificate, *ecdsa.PrivateKey, string, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, by := template, key
	if a != nil {
		parent, by = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

// issue makes a certificate for a name.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	_, _, cert, key = sign509(a.t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	return cert, key
}

// secure makes a server speak TLS, and ask clients for certificates of an authority where there is one.
func (a *authority) secure(clients *authority) func(*server.Options) {
	return func(o *server.Options) {
		cert, key := a.issue("server")
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			a.t.Fatal(err)
		}
		o.JetStream, o.TLS, o.TLSTimeout = false, true, 2
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		if clients != nil {
			o.TLSVerify = true
			o.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
			o.TLSConfig.ClientCAs = x509.NewCertPool()
			o.TLSConfig.ClientCAs.AddCert(clients.cert)
		}
	}
}

func TestAServerOfAnotherAuthorityIsNotTrustedAndTriedOn(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	h := newHub(t, ours.secure(nil))
	h.start()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.CA = ca })
	refused(t, s) // without the file
	write(t, ca, others.pem)
	refused(t, s)
	write(t, ca, ours.pem)
	until(t, "it connects once the file is right", s.nc.IsConnected)
}

func TestClientCertificatesAreReadAtEachConnection(t *testing.T) {
	t.Parallel()
	ours, old := newAuthority(t), newAuthority(t)
	h := newHub(t, ours.secure(ours))
	h.start()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, ca, ours.pem)
	renew := func(a *authority) {
		c, k := a.issue("agent")
		write(t, cert, c)
		write(t, key, k)
	}
	renew(old)
	s := newSenderOf(t, Config{
		Servers: []string{"tls://" + h.url()[len("nats://"):]}, Name: "test", CA: ca, Cert: cert, Key: key,
	}, newSpool(t, t.TempDir()), quiet)
	refused(t, s)
	renew(ours)
	until(t, "it connects with the renewed one", s.nc.IsConnected)
	// The server is renewed by another authority; both certificates follow while the agent runs.
	h.stop()
	next := newAuthority(t)
	next.secure(next)(&h.options)
	write(t, ca, ours.pem+next.pem)
	renew(next)
	h.start()
	until(t, "it connects again", s.nc.IsConnected)
}

func TestTheHandshakeMayComeFirst(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	h := newHub(t, a.secure(nil), func(o *server.Options) { o.TLSHandshakeFirst = true })
	h.start()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, a.pem)
	s := newSender(t, h, newSpool(t, t.TempDir()), func(c *Config) { c.CA, c.TLSFirst = ca, true })
	until(t, "it connects", s.nc.IsConnected)
}
