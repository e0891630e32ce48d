// Render a chart as `helm template` does, with Helm's own packages, lint it as `helm lint` does, and decode each object
// strictly into the type that Kubernetes has for it: an unknown or a doubled field, or a value of the wrong type, is a
// fault. Kinds that only some clusters have (ServiceMonitor) are passed on as they are.
//
//	helm-check CHART VALUES.yaml ...     for each file a line with a JSON array of the objects; faults go to stderr,
//	                                     exit status 1
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/getter"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: helm-check CHART VALUES.yaml ...")
		os.Exit(2)
	}
	bad := false
	for at, file := range os.Args[2:] {
		objects, faults := check(os.Args[1], file, at == 0)
		for _, fault := range faults {
			bad = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, fault)
		}
		if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if bad {
		os.Exit(1)
	}
}

func check(path, file string, linted bool) ([]json.RawMessage, []error) {
	chart, err := loader.Load(path)
	if err != nil {
		return nil, []error{err}
	}
	options := values.Options{ValueFiles: []string{file}}
	given, err := options.MergeValues(getter.Providers{})
	if err != nil {
		return nil, []error{err}
	}
	var faults []error
	if linted { // once: it is as slow as all else, and its rules are about the chart
		for _, message := range lint.All(path, given, "monitoring", true).Messages {
			if message.Severity >= support.WarningSev {
				faults = append(faults, message)
			}
		}
	}
	release := chartutil.ReleaseOptions{Name: "herd", Namespace: "monitoring", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, append(faults, err)
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return nil, append(faults, err)
	}
	var objects []json.RawMessage
	for _, name := range names(rendered) {
		for _, document := range strings.Split("\n"+rendered[name], "\n---") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			object, err := decode([]byte(document))
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w\n%s", name, err, document))
			} else if object != nil {
				objects = append(objects, object)
			}
		}
	}
	return objects, faults
}

func names(rendered map[string]string) []string {
	var found []string
	for name := range rendered {
		if ext := filepath.Ext(name); ext == ".yaml" {
			found = append(found, name)
		}
	}
	sort.Strings(found)
	return found
}

// decode returns an object as JSON, nil for a document of comments alone.
func decode(document []byte) (json.RawMessage, error) {
	plain, err := yaml.YAMLToJSONStrict(document)
	if err != nil || bytes.Equal(plain, []byte("null")) {
		return nil, err
	}
	strict := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		kjson.SerializerOptions{Strict: true})
	if _, _, err := strict.Decode(plain, nil, nil); err != nil && !runtime.IsNotRegisteredError(err) {
		return nil, err
	}
	return plain, nil
}
