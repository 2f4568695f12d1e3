package report

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture is one plot, ready to be encoded.
type Picture struct {
	// Name is a file's name without its suffix.
	Name string
	// Title says what the picture answers; Subtitle what was measured, on
	// what, when, and how its intervals were made.
	Title    string
	Subtitle []string
	// Doubts are warnings without which the figures must not be read.
	Doubts []string
	// Notes say what is not drawn, and why.
	Notes []string

	height vg.Length // of the body
	body   func(draw.Canvas)
	chart  func() Chart // what it shows, as data
}

// A picture is 800 pixels wide: 600 points at 96 dots an inch.
const (
	pictureWidth = 600
	pictureDPI   = 96
	margin       = 12
	// bodyHeight makes a plot of lines about 500 pixels high in all.
	bodyHeight = 290
	// maxHead is how many lines one sentence of the head may take.
	maxHead = 3
	// maxFoot is how many notes are drawn; the caller is told all.
	maxFoot = 5
)

var (
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	quiet = color.RGBA{0x55, 0x55, 0x55, 0xff}
	faint = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	// laneGround is where a lane has nothing.
	laneGround = color.RGBA{0xf2, 0xf2, 0xf2, 0xff}
	doubt      = color.RGBA{0xa4, 0x00, 0x00, 0xff}
	ground     = color.White
)

// textStyle is a sans-serif style; the metrics of the Liberation fonts, which
// travel with the program, make the layout the same everywhere.
func textStyle(size vg.Length, c color.Color) draw.TextStyle {
	return draw.TextStyle{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: text.Plain{Fonts: font.DefaultCache}, XAlign: draw.XLeft, YAlign: draw.YBottom,
	}
}

func bold(s draw.TextStyle) draw.TextStyle {
	s.Font.Weight = xfont.WeightBold
	return s
}

func titleStyle() draw.TextStyle { return bold(textStyle(13, ink)) }
func smallStyle() draw.TextStyle { return textStyle(9, ink) }
func quietStyle() draw.TextStyle { return textStyle(9, quiet) }
func doubtStyle() draw.TextStyle { return bold(textStyle(9, doubt)) }
func noteStyle() draw.TextStyle  { return textStyle(8.5, quiet) }

// write draws text. Its spaces become no-break ones, as the fonts move a space
// so close to some letters (A, T) that it vanishes.
func write(c draw.Canvas, s draw.TextStyle, at vg.Point, text string) {
	c.FillText(s, at, unkerned(text))
}

func unkerned(s string) string { return strings.ReplaceAll(s, " ", "\u00a0") }

func widthOf(s draw.TextStyle, text string) vg.Length { return s.Width(unkerned(text)) }

// lineOf is the distance of two lines of text.
func lineOf(s draw.TextStyle) vg.Length { return s.Font.Size * 1.35 }

// textLine is a line of text with its style.
type textLine struct {
	text  string
	style draw.TextStyle
}

func (p Picture) head() []textLine {
	const width = pictureWidth - 2*margin
	var out []textLine
	add := func(s string, style draw.TextStyle) {
		lines := wrap(s, style, width)
		if len(lines) > maxHead {
			lines = lines[:maxHead]
			lines[maxHead-1] = fit(lines[maxHead-1]+" ...", style, width)
		}
		for _, l := range lines {
			out = append(out, textLine{l, style})
		}
	}
	add(p.Title, titleStyle())
	for _, s := range p.Subtitle {
		add(s, quietStyle())
	}
	for _, s := range p.Doubts {
		add(s, doubtStyle())
	}
	return out
}

func (p Picture) foot() []textLine {
	const width = pictureWidth - 2*margin
	var out []textLine
	for i, s := range p.Notes {
		lines := wrap(s, noteStyle(), width)
		if len(out)+len(lines) > maxFoot {
			out = append(out, textLine{fmt.Sprintf("And %d more notes: see the tables.", len(p.Notes)-i), noteStyle()})
			break
		}
		for _, l := range lines {
			out = append(out, textLine{l, noteStyle()})
		}
	}
	return out
}

func heightOf(lines []textLine) vg.Length {
	var h vg.Length
	for _, l := range lines {
		h += lineOf(l.style)
	}
	return h
}

// size is the whole picture's.
func (p Picture) size() (w, h vg.Length) {
	return pictureWidth, 2*margin + heightOf(p.head()) + 8 + p.height + heightOf(p.foot())
}

func (p Picture) draw(c draw.Canvas) {
	c.SetColor(ground)
	c.Fill(c.Rectangle.Path())
	y := c.Max.Y - margin
	put := func(lines []textLine) {
		for _, l := range lines {
			y -= lineOf(l.style)
			write(c, l.style, vg.Point{X: c.Min.X + margin, Y: y}, l.text)
		}
	}
	put(p.head())
	bottom := margin + heightOf(p.foot())
	p.body(draw.Crop(c, margin, -margin, bottom, y-8-c.Max.Y))
	y = c.Min.Y + bottom
	put(p.foot())
}

// Formats of a picture.
const (
	PNG = "png"
	SVG = "svg"
)

// Encode draws the picture as [PNG] or [SVG].
func (p Picture) Encode(w io.Writer, format string) error {
	width, height := p.size()
	switch format {
	case PNG:
		c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pictureDPI))
		p.draw(draw.New(c))
		e := png.Encoder{CompressionLevel: png.BestCompression}
		if err := e.Encode(w, paletted(c.Image())); err != nil {
			return fmt.Errorf("encode plot %s: %w", p.Name, err)
		}
		return nil
	case SVG:
		c := vgsvg.New(width, height)
		p.draw(draw.New(c))
		var b bytes.Buffer
		if _, err := c.WriteTo(&b); err != nil {
			return fmt.Errorf("encode plot %s: %w", p.Name, err)
		}
		_, err := w.Write(portableFonts(b.Bytes()))
		return err
	}
	return fmt.Errorf("encode plot %s: unknown format %q; known: %s, %s", p.Name, format, PNG, SVG)
}

// portableFonts names fonts of the same widths beside Liberation Sans, which
// few viewers have. Embedding it would make each file ten times larger.
func portableFonts(svg []byte) []byte {
	return bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans"),
		[]byte("font-family:'Liberation Sans',Arimo,Arial,Helvetica,sans-serif"))
}

// wrap breaks text at spaces to a width; a word that is longer is shortened.
func wrap(s string, style draw.TextStyle, width vg.Length) []string {
	var out []string
	line := ""
	for _, w := range strings.Fields(s) {
		w = fit(w, style, width)
		switch joined := line + " " + w; {
		case line == "":
			line = w
		case widthOf(style, joined) <= width:
			line = joined
		default:
			out, line = append(out, line), w
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// fit shortens text to a width in its middle: long names differ as a rule at
// their ends.
func fit(s string, style draw.TextStyle, width vg.Length) string {
	if widthOf(style, s) <= width {
		return s
	}
	runes := []rune(s)
	if len(runes) > 400 { // measuring is linear in the length
		runes = append(runes[:200:200], runes[len(runes)-200:]...)
	}
	for n := len(runes) - 1; n >= 2; n-- {
		short := string(runes[:(n+1)/2]) + "..." + string(runes[len(runes)-n/2:])
		if widthOf(style, short) <= width {
			return short
		}
	}
	return "..."
}

// newPlot is an empty plot in the pictures' style.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		style := a.Tick.Label
		a.Tick.Label = smallStyle()
		a.Tick.Label.XAlign, a.Tick.Label.YAlign = style.XAlign, style.YAlign
		a.Tick.Length, a.Padding = 4, 0
		a.Tick.LineStyle.Color, a.LineStyle.Color = quiet, quiet
		style = a.Label.TextStyle
		a.Label.TextStyle = smallStyle()
		a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign = style.XAlign, style.YAlign
		a.Label.Padding = 3
	}
	return p
}
