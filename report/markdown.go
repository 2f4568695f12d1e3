package report

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Markdown writes the tables of [Tables] as a page in GitHub's dialect.
func Markdown(w io.Writer, records []Named) error {
	return gather(records).markdown(w, nil, nil)
}

// markdown writes the page with the pictures that lie beside it, and what
// could not be drawn.
func (s sources) markdown(w io.Writer, pictures []Picture, absent []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# trbench report\n\n")
	for _, src := range s.list {
		fmt.Fprintf(&b, "- %s\n", markdownText(src.summary()))
	}
	for _, t := range s.sections() {
		b.WriteString("\n")
		t.markdown(&b)
	}
	fmt.Fprintf(&b, "\n## benchstat\n\nreport.bench holds every process's figures in Go's benchmark format. To compare the modes:\n\n")
	fmt.Fprintf(&b, "```sh\n%s\n%s\n```\n\n", benchstatInstall, strings.Join(benchstatCommands, "\n"))
	fmt.Fprintf(&b, "%s\n%s\n", markdownText(benchstatStep), markdownText(benchstatFew))
	if len(pictures)+len(absent) > 0 {
		b.WriteString("\n## Plots\n")
	}
	for _, p := range pictures {
		fmt.Fprintf(&b, "\n![%s](%s)\n", markdownText(p.Title+" "+strings.Join(p.Subtitle, " ")), filepath.ToSlash(p.Name+".png"))
	}
	if len(absent) > 0 {
		b.WriteString("\n")
	}
	for _, line := range absent {
		fmt.Fprintf(&b, "- %s\n", markdownText(line))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown is a table below its title, with its lines.
func (t Section) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "## %s\n\n", markdownText(t.Title))
	t.Grid.markdown(b)
	if len(t.Lines) > 0 {
		b.WriteString("\n")
	}
	for _, line := range t.Lines {
		// Two spaces keep the line break, so that an indented end of
		// a worker's stderr stays below its cause.
		fmt.Fprintf(b, "%s  \n", markdownText(line))
	}
}

// summary is a record in a line: what ran where and when.
func (src *source) summary() string {
	r := src.record
	parts := []string{src.name}
	if !r.Created.IsZero() {
		parts = append(parts, r.Created.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if d := deviceOf(r); d != "" {
		parts = append(parts, d)
	}
	if v := src.fact("revision"); v != "" {
		parts = append(parts, "revision "+v)
	}
	if r.Quick {
		parts = append(parts, "quick")
	}
	return strings.Join(parts, ", ")
}

// markdown draws the grid as a pipe table.
func (g Grid) markdown(b *strings.Builder) {
	line := func(words []string) {
		for _, w := range words {
			fmt.Fprintf(b, "| %s ", markdownText(w))
		}
		b.WriteString("|\n")
	}
	line(g.Header)
	for i := range g.Header {
		if i < g.Left || i >= len(g.Header)-g.LeftEnd {
			b.WriteString("| :-- ")
		} else {
			b.WriteString("| --: ")
		}
	}
	b.WriteString("|\n")
	for _, row := range g.Rows {
		line(row)
	}
}

// markdownText keeps text from being read as markup: names and messages come
// from records.
func markdownText(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_[]<>|#~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
