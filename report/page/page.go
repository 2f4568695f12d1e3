package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path"
	"strings"

	"github.com/tech-renaissance/trbench/report"
)

//go:embed page.html page.css page.js npm
var files embed.FS

// Extra is what a page may have beside its records.
type Extra struct {
	// Title heads the browser's tab; empty for one made from the records.
	Title string
	// Comparison stands above the headlines; nil leaves it out.
	Comparison *Comparison
	// Trends are rows over nights, behind the comparison; nil leaves them out.
	Trends *Trends
	// Timelines are steps of configurations, those of a cell behind each other;
	// TimelineNotes say which are missing. [ReadTimelines] makes both. Without any
	// of either, the page has no place for them.
	Timelines     []Timeline
	TimelineNotes []string
}

// Package is a script that the page carries from its npm release.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license"`
	// Integrity is npm's hash of the release, InPackage the file's place in
	// it, SHA256 the file's own hash in hex.
	Integrity string `json:"integrity"`
	File      string `json:"file"`
	InPackage string `json:"in_package"`
	SHA256    string `json:"sha256"`
	// LicenseText is the release's licence, whole.
	LicenseText string `json:"-"`

	script string
}

// Packages lists the scripts in the order they run.
func Packages() ([]Package, error) {
	list, err := files.ReadFile("npm/packages.json")
	if err != nil {
		return nil, fmt.Errorf("read the list of npm packages: %w", err)
	}
	var out []Package
	if err := json.Unmarshal(list, &out); err != nil {
		return nil, fmt.Errorf("read the list of npm packages: %w", err)
	}
	for i := range out {
		p := &out[i]
		script, err := files.ReadFile(path.Join("npm", p.Name, p.File))
		if err != nil {
			return nil, fmt.Errorf("read npm package %s: %w", p.Name, err)
		}
		licence, err := files.ReadFile(path.Join("npm", p.Name, "LICENSE.md"))
		if err != nil {
			return nil, fmt.Errorf("read npm package %s: %w", p.Name, err)
		}
		p.script, p.LicenseText = string(script), string(licence)
	}
	return out, nil
}

// data is what the script reads: the "data" element of the file, as JSON.
type data struct {
	Charts    []report.Chart `json:"charts"`
	Trends    []report.Chart `json:"trends,omitempty"`
	Timelines []Timeline     `json:"timelines,omitempty"`
	// SpanKinds and GapCauses are what the numbers in timelines stand for.
	SpanKinds []string `json:"span_kinds,omitempty"`
	GapCauses []string `json:"gap_causes,omitempty"`
}

// view is what the template reads.
type view struct {
	Title      string
	Policy     string
	Style      template.CSS
	Scripts    []template.JS
	Data       template.JS
	Packages   []Package
	Comparison *Comparison
	Trends     *Trends
	// RowsTitle heads the comparison's table that the explained rows follow.
	RowsTitle     string
	Groups        []group
	TimelineNotes []string
	Forest        forest
	report.Contents
}

// Write makes the page of some records. Without any, the error is
// [report.ErrNoRecords].
func Write(w io.Writer, records []report.Named, extra Extra) error {
	contents, err := report.Collect(records)
	if err != nil {
		return err
	}
	v := view{Title: extra.Title, Comparison: extra.Comparison, Trends: extra.Trends, RowsTitle: report.SectionRows,
		Groups: groups(extra.Timelines), TimelineNotes: extra.TimelineNotes, Contents: contents, Forest: forest{contents.HeadlineAxis}}
	if v.Title == "" {
		v.Title = "trbench: " + contents.Records[0]
		if n := len(contents.Records) - 1; n > 0 {
			v.Title += fmt.Sprintf(" and %d more", n)
		}
	}
	if v.Packages, err = Packages(); err != nil {
		return err
	}
	// json.Marshal writes <, > and & as escapes, so no text ends the element.
	d := data{Charts: contents.Charts, Timelines: extra.Timelines}
	if extra.Trends != nil {
		for _, t := range extra.Trends.Rows {
			if t.Drawn {
				d.Trends = append(d.Trends, t.Chart)
			}
		}
	}
	if len(d.Timelines) > 0 {
		d.SpanKinds, d.GapCauses = SpanKinds(), GapCauses()
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode the page's data: %w", err)
	}
	v.Data = template.JS(raw)
	own, err := files.ReadFile("page.js")
	if err != nil {
		return fmt.Errorf("read the page's script: %w", err)
	}
	style, err := files.ReadFile("page.css")
	if err != nil {
		return fmt.Errorf("read the page's style: %w", err)
	}
	v.Style = template.CSS(style)
	var hashes []string
	for _, p := range v.Packages {
		text := withoutMap(p.script)
		v.Scripts, hashes = append(v.Scripts, template.JS(text)), append(hashes, hashOf(text))
	}
	v.Scripts, hashes = append(v.Scripts, template.JS(own)), append(hashes, hashOf(string(own)))
	v.Policy = fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; img-src data:; base-uri 'none'; form-action 'none'",
		strings.Join(hashes, " "), hashOf(string(style)))

	t, err := template.New("page.html").Funcs(template.FuncMap{"table": tableOf, "linked": linkedTable, "longest": func(t Timeline) table { return tableOf("longest gaps of "+t.Configuration, t.longest()) }, "join": strings.Join, "anchor": anchor, "cell": figureCell, "verdict": toneOf, "parts": parts}).ParseFS(files, "page.html")
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	// Into memory first: an error must not leave half a page behind.
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return fmt.Errorf("fill the page's template: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// withoutMap drops the line by which a browser's tools would look for a file
// beside this one.
func withoutMap(script string) string {
	head, _, _ := strings.Cut(script, "\n//# sourceMappingURL=")
	return head
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// anchor is a section's id.
func anchor(title string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, title)
	return "t-" + strings.Trim(s, "-")
}
