package results

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "rewrite the JSON Schema of the current minor version")

func schemaFile(minor int) string {
	return filepath.Join("schema", fmt.Sprintf("%s-%d.%d.json", SchemaName, SchemaMajor, minor))
}

// describer makes a JSON Schema of Go types. It asks for no field and allows
// others: a reader treats an absent field as its default and keeps what it
// does not know.
type describer struct {
	defs map[string]any
	docs map[string]string // comments in the source, by type and by type.field
}

// comments reads what the source says of types and fields.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	keep := func(name string, groups ...*ast.CommentGroup) {
		var parts []string
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				parts = append(parts, text)
			}
		}
		if len(parts) > 0 {
			docs[name] = strings.NewReplacer("[", "", "]", "").Replace(strings.Join(parts, " "))
		}
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				ts := spec.(*ast.TypeSpec)
				keep(ts.Name.Name, g.Doc)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range st.Fields.List {
					for _, n := range field.Names {
						keep(ts.Name.Name+"."+n.Name, field.Doc, field.Comment)
					}
				}
			}
		}
	}
	return docs
}

// described adds what the source says to a schema.
func (d *describer) described(schema map[string]any, name string) map[string]any {
	if text := d.docs[name]; text != "" {
		schema["description"] = text
	}
	return schema
}

func (d *describer) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{} // anything
	case reflect.TypeFor[uint64]():
		return map[string]any{"type": "integer", "minimum": 0}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{d.of(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.Slice:
		return map[string]any{"type": []any{"array", "null"}, "items": d.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": []any{"object", "null"}, "additionalProperties": d.of(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Struct:
		return d.object(t)
	}
	panic("no JSON Schema for " + t.String())
}

// object puts a struct among the definitions and refers to it.
func (d *describer) object(t reflect.Type) map[string]any {
	ref := map[string]any{"$ref": "#/$defs/" + t.Name()}
	if _, done := d.defs[t.Name()]; done {
		return ref
	}
	properties := map[string]any{}
	d.defs[t.Name()] = d.described(map[string]any{"type": "object", "properties": properties}, t.Name())
	for i := range t.NumField() {
		if name := fieldName(t.Field(i)); name != "-" {
			properties[name] = d.described(d.of(t.Field(i).Type), t.Name()+"."+t.Field(i).Name)
		}
	}
	return ref
}

// describe is the schema of a record of this version.
func describe(t *testing.T) []byte {
	d := &describer{defs: map[string]any{}, docs: comments(t)}
	ref := d.of(reflect.TypeFor[Record]())
	d.defs["Schema"] = map[string]any{
		"type": "object", "required": []any{"name", "major", "minor"},
		"properties": map[string]any{"name": map[string]any{"const": SchemaName}, "major": map[string]any{"const": SchemaMajor},
			"minor": map[string]any{"type": "integer", "minimum": 0}},
	}
	top := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   fmt.Sprintf("%s %d.%d", SchemaName, SchemaMajor, SchemaMinor),
		"$ref":    ref["$ref"], "required": []any{"schema"}, "$defs": d.defs,
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(top); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The committed schema is the types'.
func TestSchemaIsCurrent(t *testing.T) {
	want := describe(t)
	file := schemaFile(SchemaMinor)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the types say; go test ./results -update writes it", file)
	}
}

func compileSchema(t *testing.T, minor int) *jsonschema.Schema {
	t.Helper()
	b, err := os.ReadFile(schemaFile(minor))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("record.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("record.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func TestSchemaValidates(t *testing.T) {
	s := compileSchema(t, SchemaMinor)
	empty := &Record{Schema: Schema{SchemaName, SchemaMajor, SchemaMinor}, Cells: []Cell{{Configurations: []Configuration{{Metrics: []Metric{{}}}}}}}
	for _, r := range []*Record{sample(), empty} {
		if err := validate(t, s, encoded(t, r)); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		`{}`, `[]`, `{"schema":{"name":"other","major":1,"minor":1}}`, `{"schema":{"name":"trbench.record","major":2,"minor":0}}`,
		`{"schema":{"name":"trbench.record","major":1,"minor":1},"cells":[{"key":{"batch":"four"}}]}`,
		`{"schema":{"name":"trbench.record","major":1,"minor":1},"seed":-1}`,
	} {
		if validate(t, s, bad) == nil {
			t.Errorf("%s is valid", bad)
		}
	}
}

// Every released minor version is read forever, fits the newest schema, and
// is passed on with nothing lost.
func TestReleasedVersions(t *testing.T) {
	s := compileSchema(t, SchemaMinor)
	for minor := range SchemaMinor + 1 {
		file := filepath.Join("testdata", fmt.Sprintf("record-%d.%d.json", SchemaMajor, minor))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if r.Schema.Minor != minor {
			t.Errorf("%s is of %d.%d", file, r.Schema.Major, r.Schema.Minor)
		}
		if err := validate(t, s, string(text)); err != nil {
			t.Error(err)
		}
		c := r.Cells[0]
		m := c.Configurations[1].Metric(StepTimeNs)
		if c.Key.Workload != "golden-tiny" || c.Configurations[1].Key.Mode != "graph" || m.Value <= 0 || len(m.Samples) != m.N || c.Status != Done || r.Status != Complete {
			t.Errorf("%s: %+v", file, c.Key)
		}
		if minor >= 1 && (m.Summary == nil || len(c.Processes) == 0 || r.Plan == nil || len(c.Ratios) == 0) {
			t.Errorf("%s lacks what 1.1 has", file)
		}
		if t2 := r.Cells[0].Configurations[1].Trace; minor >= 2 && (t2.Metric(BusyNs) == nil || t2.Kernels.Expected == nil || t2.File == "" || r.Plan.TraceSteps == 0) {
			t.Errorf("%s lacks what 1.2 has", file)
		}
		if minor >= 3 && (r.PlanDigest == "" || r.CheckDigest() != nil) {
			t.Errorf("%s lacks what 1.3 has: %v", file, r.CheckDigest())
		}
		if minor >= 4 {
			counts := r.Cells[0].Configurations[1].Counts
			sum := map[string]int64{}
			for _, g := range counts.Graphs {
				for kind, n := range g.Nodes {
					sum[kind] += n
				}
				if g.Name == "" || g.CriticalPath == 0 || g.WidestSection == 0 {
					t.Errorf("%s: graph %+v", file, g)
				}
			}
			if len(sum) == 0 || !maps.Equal(sum, counts.GraphNodes) {
				t.Errorf("%s: graphs of %v nodes together, a step of %v", file, sum, counts.GraphNodes)
			}
		}
		var all, again any
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(encoded(t, r)), &again); err != nil {
			t.Fatal(err)
		}
		if lost := missing(all, again, ""); lost != "" {
			t.Errorf("%s: %s was lost", file, lost)
		}
	}
}

// missing names something of a that b does not have; empty if it has all.
func missing(a, b any, at string) string {
	switch a := a.(type) {
	case map[string]any:
		o, _ := b.(map[string]any)
		for k, v := range a {
			if m := missing(v, o[k], at+"."+k); m != "" {
				return m
			}
		}
	case []any:
		o, _ := b.([]any)
		if len(o) != len(a) {
			return at
		}
		for i, v := range a {
			if m := missing(v, o[i], fmt.Sprintf("%s[%d]", at, i)); m != "" {
				return m
			}
		}
	default:
		if !reflect.DeepEqual(a, b) {
			return at
		}
	}
	return ""
}

// A figure that could be of one rank or of all says which it is.
func TestSchemaSaysWhose(t *testing.T) {
	docs := comments(t)
	for name, want := range map[string]string{
		"Verify.Bytes": "over all ranks", "Verify.Tensors": "of one rank", "Memory.ArenaBytes": "of one rank",
		"Memory.PinnedBytes": "of one rank", "Atlas": "of one rank", "ExecutionTable.Bytes": "over all ranks",
		"Captures": "over all ranks", "Counts": "of one rank", "Launches": "on one rank", "Launches.Host": "those of graphs included",
		"CapturedGraph": "of one rank", "PhaseMemory": "of rank 0",
	} {
		if !strings.Contains(docs[name], want) {
			t.Errorf("%s: %q does not say %q", name, docs[name], want)
		}
	}
}
