package heelerv1

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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
	if got := plainValue(t, value); !reflect.DeepEqual(got, want) {
		t.Errorf("decoded and encoded again:\n got %v\nwant %v", got, want)
	}
	if _, err := m.Subject(); err != nil {
		t.Errorf("subject: %v", err)
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
