package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// Grid is a table of words: a header and rows of the same length. The first
// Left columns and the last LeftEnd ones are aligned left, the others,
// figures, right.
type Grid struct {
	Header        []string
	Rows          [][]string
	Left, LeftEnd int
}

// Write draws the grid with ASCII lines, whatever the terminal.
func (g Grid) Write(w io.Writer) error {
	align := make(tw.Alignment, len(g.Header))
	for i := range align {
		align[i] = tw.AlignRight
		if i < g.Left || i >= len(align)-g.LeftEnd {
			align[i] = tw.AlignLeft
		}
	}
	none := tw.Rendition{
		Borders: tw.BorderNone,
		Symbols: tw.NewSymbols(tw.StyleASCII),
		Settings: tw.Settings{
			Separators: tw.Separators{BetweenColumns: tw.Off, ShowHeader: tw.On},
			Lines:      tw.Lines{ShowHeaderLine: tw.On},
		},
	}
	var drawn bytes.Buffer
	t := tablewriter.NewTable(&drawn,
		tablewriter.WithRendition(none),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithPadding(tw.Padding{Left: "", Right: "  ", Overwrite: true}),
	)
	t.Header(g.Header)
	for _, row := range g.Rows {
		if err := t.Append(row); err != nil {
			return fmt.Errorf("draw table: %w", err)
		}
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("draw table: %w", err)
	}
	for line := range strings.Lines(drawn.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
