package report

import (
	"cmp"
	"image"
	"image/color"
	"slices"
)

// paletted reduces a picture to 256 colours, which makes its file a third as
// large: a plot has a dozen colours and their blends with white. The frequent
// ones stay exact; a rare blend becomes the nearest of them.
func paletted(in image.Image) *image.Paletted {
	b := in.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(in.At(x, y)).(color.RGBA) }
	if rgba, ok := in.(*image.RGBA); ok {
		at = rgba.RGBAAt
	}
	count := map[color.RGBA]int{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	colors := make([]color.RGBA, 0, len(count))
	for c := range count {
		colors = append(colors, c)
	}
	key := func(c color.RGBA) uint32 { return uint32(c.R)<<24 | uint32(c.G)<<16 | uint32(c.B)<<8 | uint32(c.A) }
	slices.SortFunc(colors, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(key(a), key(b)))
	})
	// Colours next to a chosen one are not chosen again, so that the palette
	// reaches the rare hues too.
	var palette color.Palette
	near := map[color.RGBA]bool{}
	for _, c := range colors {
		coarse := color.RGBA{c.R >> 4, c.G >> 4, c.B >> 4, c.A >> 7}
		if len(palette) < 256 && (len(palette) < 24 || !near[coarse]) {
			palette, near[coarse] = append(palette, c), true
		}
	}
	index := make(map[color.RGBA]uint8, len(colors))
	for _, c := range colors {
		index[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(b, palette)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			out.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return out
}
