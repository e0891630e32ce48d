package heelerv1

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/tinylib/msgp/msgp"
)

const vectors = "../../vectors"

// snake turns GpuSample into gpu_sample, the folder of its vectors.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func cases(t *testing.T, parts ...string) []string {
	t.Helper()
	pattern := filepath.Join(append([]string{vectors}, parts...)...)
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// plainJSON gives JSON as maps, slices, strings, bools and *big.Rat, without what means "not known".
func plainJSON(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return plainValue(t, v)
}

func plainValue(t *testing.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if bin, ok := v["$bin"]; ok {
			return bin
		}
		out := map[string]any{}
		for key, value := range v {
			if p := plainValue(t, value); !empty(p) {
				out[key] = p
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = plainValue(t, value)
		}
		return out
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case nil, string, bool:
		return v
	case float32:
		return plainValue(t, float64(v))
	default:
		r, ok := new(big.Rat).SetString(fmt.Sprint(v))
		if !ok {
			t.Fatalf("cannot compare %T %v", v, v)
		}
		return r.RatString()
	}
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}

// known drops the keys that a Go type does not have: readers ignore them.
func known(v any, typ reflect.Type) any {
	typ = base(typ)
	object, ok := v.(map[string]any)
	if list, isList := v.([]any); isList {
		for i := range list {
			list[i] = known(list[i], typ)
		}
		return list
	}
	if !ok || typ.Kind() == reflect.Interface {
		return v
	}
	if typ.Kind() == reflect.Map {
		for key := range object {
			object[key] = known(object[key], typ.Elem())
		}
		return object
	}
	if typ.Kind() != reflect.Struct {
		return v
	}
	have := fields(typ)
	if _, untagged := have[""]; untagged { // an array on the wire
		return v
	}
	for key := range object {
		if field, ok := have[key]; ok {
			object[key] = known(object[key], field)
		} else {
			delete(object, key)
		}
	}
	return object
}

func TestGoldenVectors(t *testing.T) {
	for _, name := range Types() {
		paths := cases(t, snake(name), "*.msgpack")
		if len(paths) == 0 {
			t.Errorf("no vectors for %s", name)
		}
		for _, path := range paths {
			t.Run(snake(name)+"/"+filepath.Base(path), func(t *testing.T) { checkVector(t, name, path) })
		}
	}
}

func checkVector(t *testing.T, name, path string) {
	payload := read(t, path)
	m := New(name)
	if err := Decode(payload, m); err != nil {
		t.Fatal(err)
	}
	again, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	value, rest, err := msgp.ReadIntfBytes(again)
	if err != nil || len(rest) > 0 {
		t.Fatalf("our own payload is unreadable: %v, %d bytes left", err, len(rest))
	}
	typ := reflect.TypeOf(m).Elem()
	want := known(plainJSON(t, read(t, strings.TrimSuffix(path, ".msgpack")+".json")), typ)
	compare(t, "", plainValue(t, value), want)
	if _, err := m.Subject(); err != nil && !errors.Is(err, ErrActor) {
		t.Errorf("subject: %v", err)
	}
}

// compare reports where two plain values differ.
func compare(t *testing.T, path string, got, want any) {
	g, gotMap := got.(map[string]any)
	w, wantMap := want.(map[string]any)
	if !gotMap || !wantMap {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
		return
	}
	for key := range g {
		if _, ok := w[key]; !ok {
			t.Errorf("%s.%s: got %v, want nothing", path, key, g[key])
		}
	}
	for key := range w {
		compare(t, path+"."+key, g[key], w[key])
	}
}

func TestBadVectorsAreRefused(t *testing.T) {
	total := 0
	for _, name := range Types() {
		for _, path := range cases(t, snake(name), "bad", "*.msgpack") {
			total++
			t.Run(snake(name)+"/"+filepath.Base(path), func(t *testing.T) {
				reason := strings.TrimSpace(string(read(t, strings.TrimSuffix(path, ".msgpack")+".txt")))
				if err := Decode(read(t, path), New(name)); err == nil {
					t.Errorf("accepted, but: %s", reason)
				}
			})
		}
	}
	if total == 0 {
		t.Error("no bad vectors")
	}
}

func TestTokenVectors(t *testing.T) {
	var v struct {
		Good [][2]string `json:"good"`
		Bad  []string    `json:"bad"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(vectors, "tokens.json")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Good) == 0 || len(v.Bad) == 0 {
		t.Fatal("no cases")
	}
	for _, pair := range v.Good {
		if got, err := Token(pair[0]); err != nil || got != pair[1] {
			t.Errorf("%q became %q, %v; want %q", pair[0], got, err, pair[1])
		}
		if back, err := Untoken(pair[1]); err != nil || back != pair[0] {
			t.Errorf("%q came back as %q, %v", pair[1], back, err)
		}
	}
	for _, name := range v.Bad {
		if got, err := Token(name); err == nil {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestShardVectors(t *testing.T) {
	var pairs [][2]any
	if err := json.Unmarshal(read(t, filepath.Join(vectors, "shards.json")), &pairs); err != nil {
		t.Fatal(err)
	}
	if len(pairs) == 0 {
		t.Fatal("no cases")
	}
	for _, pair := range pairs {
		if got := Shard(pair[0].(string)); float64(got) != pair[1] {
			t.Errorf("%q is on shard %d, want %v", pair[0], got, pair[1])
		}
	}
}
