package heelerv1

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SubjectPrefix begins every subject of this version.
const SubjectPrefix = "heeler.v1"

// Shards is the number of shards that keyed processors split the work into.
const Shards = 16

const maxToken = 200

// Token turns a name from outside (a cluster, node or job) into one token of a subject: bytes other than letters,
// digits, '_' and '-' become =HH. It refuses what no name can be.
func Token(name string) (string, error) {
	if name == "" {
		return "", errors.New("empty name")
	}
	if !utf8.ValidString(name) {
		return "", errors.New("name is not valid UTF-8")
	}
	if strings.ContainsFunc(name, control) {
		return "", errors.New("name has a control character")
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() > maxToken {
		return "", fmt.Errorf("name takes %d bytes as a token, more than %d", b.Len(), maxToken)
	}
	return b.String(), nil
}

func control(r rune) bool { return r < ' ' || r == 0x7F }

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// Untoken is the reverse of [Token]. It refuses what Token never writes.
func Untoken(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			b.WriteByte(token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("token %q ends inside an escape", token)
		}
		c, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("token %q has a bad escape", token)
		}
		b.WriteByte(byte(c))
		i += 2
	}
	name := b.String()
	if again, err := Token(name); err != nil || again != token {
		return "", fmt.Errorf("token %q is not the escaped form of any name", token)
	}
	return name, nil
}

// subject joins the prefix, the cluster, a fixed middle such as "gpu.sample", and keys.
func subject(cluster, middle string, keys ...string) (string, error) {
	c, err := Token(cluster)
	if err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	parts := []string{SubjectPrefix, c, middle}
	for _, key := range keys {
		k, err := Token(key)
		if err != nil {
			return "", fmt.Errorf("%s: %w", middle, err)
		}
		parts = append(parts, k)
	}
	return strings.Join(parts, "."), nil
}

// Shard is the shard of a job id or a node name.
func Shard(key string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(key)) % Shards) }

// MsgID is the Nats-Msg-Id of a node's message: the same for a twin, and unique over all messages of a stream.
func MsgID(messageType, cluster, node, boot string, seq uint64) (string, error) {
	parts := []string{messageType}
	for _, part := range []string{cluster, node, boot} {
		t, err := Token(part)
		if err != nil {
			return "", fmt.Errorf("message id: %w", err)
		}
		parts = append(parts, t)
	}
	return strings.Join(append(parts, strconv.FormatUint(seq, 10)), "."), nil
}
