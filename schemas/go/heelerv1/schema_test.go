package heelerv1

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// schema is what these tests need of a JSON Schema.
type schema struct {
	Title                string             `json:"title"`
	Required             []string           `json:"required"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	Enum                 []string           `json:"enum"`
}

func schemas(t *testing.T) []*schema {
	t.Helper()
	paths, err := filepath.Glob("../../*.v1.schema.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no schemas beside this module: %v", err)
	}
	var all []*schema
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := &schema{}
		if err := json.Unmarshal(data, s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, s)
	}
	return all
}

// fields maps the keys of a struct to the types of its fields, flattening embedded structs.
func fields(typ reflect.Type) map[string]reflect.Type {
	found := map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("msg"), ",")
		if options == "flatten" {
			for k, v := range fields(f.Type) {
				found[k] = v
			}
			continue
		}
		found[key] = f.Type
	}
	return found
}

func base(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ
}

func compareKeys(t *testing.T, where string, s *schema, typ reflect.Type) {
	have := fields(typ)
	for key, sub := range s.Properties {
		field, ok := have[key]
		if !ok {
			t.Errorf("%s: the schema has %q, the Go type doesn't", where, key)
			continue
		}
		if b := base(field); b.Kind() == reflect.Struct && b.Name() != "Value" && b.Name() != "Proc" && b.Name() != "NVLinkRow" {
			next := sub
			if sub.Items != nil {
				next = sub.Items
			}
			compareKeys(t, where+"."+key, next, b)
		}
		if field.Kind() == reflect.Map && field.Elem().Kind() == reflect.Struct && field.Elem().Name() != "Value" {
			values := &schema{}
			if err := json.Unmarshal(sub.AdditionalProperties, values); err != nil {
				t.Fatal(err)
			}
			compareKeys(t, where+"."+key, values, field.Elem())
		}
	}
	for key := range have {
		if _, ok := s.Properties[key]; !ok {
			t.Errorf("%s: the Go type has %q, the schema doesn't", where, key)
		}
	}
}

func compareRequired(t *testing.T, where string, s *schema, n *need) {
	var keys []string
	if n != nil {
		keys = slices.Clone(n.keys)
	}
	want := slices.Clone(s.Required)
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("%s: required keys are %v, the schema says %v", where, keys, want)
	}
	for key, sub := range s.Properties {
		if sub.Properties != nil {
			compareRequired(t, where+"."+key, sub, n.child(key))
		}
		if sub.Items != nil && sub.Items.Properties != nil {
			compareRequired(t, where+"."+key+"[]", sub.Items, n.child(key+"[]"))
		}
	}
}

func (n *need) child(key string) *need {
	if n == nil {
		return nil
	}
	return n.sub[key]
}

func TestTheTypesHaveTheKeysOfTheSchemas(t *testing.T) {
	for _, s := range schemas(t) {
		m := New(s.Title)
		if m == nil {
			t.Errorf("no Go type for %s", s.Title)
			continue
		}
		compareKeys(t, s.Title, s, reflect.TypeOf(m).Elem())
		compareRequired(t, s.Title, s, required(s.Title))
	}
}

func TestEachTypeHasASchema(t *testing.T) {
	all := schemas(t)
	for _, name := range Types() {
		if !slices.ContainsFunc(all, func(s *schema) bool { return s.Title == name }) {
			t.Errorf("no schema for %s", name)
		}
	}
}
